#include "tools/app/run.h"

#include <algorithm>
#include <future>
#include <utility>

#include "io/files/whole_file.h"
#include "stages/safetensors.h"
#include "tools/app/correction_choice.h"
#include "tools/app/frame_counts.h"
#include "tools/app/outputs/outputs.h"
#include "tools/app/parts.h"
#include "tools/app/outputs/pictures.h"
#include "tools/app/feeds/replay_options.h"
#include "tools/app/outputs/report.h"
#include "tools/app/feeds/run_source.h"
#include "tools/app/outputs/summary.h"

namespace millrace::app {
namespace {

using namespace std::chrono_literals;

/// What the main thread does beside the pipeline, again and again.
void look(RunParts& p, std::int64_t limit) {
  p.events.tell([&](const std::string& line) { p.tell(line); });
  const std::string rate_change = p.rate_watch->look();
  if (!rate_change.empty()) p.tell("source: " + rate_change);
  const std::string change = p.overload.look();
  if (!change.empty()) p.tell("overload: " + change);
  // What is lost at the end, when no more frames are wanted, is no word on the rate.
  const bool ending =
      p.stopping.load(std::memory_order_relaxed) || (limit > 0 && p.feed->taken() >= limit);
  if (!ending) p.real_time.note(frame_counts(p.queue, p.trainer), p.overload.late());
  if (p.lines) p.lines->write();
  p.writes.look(p.checkpointer ? p.checkpointer->error() : "", p.lines ? p.lines->error() : "",
                [&](const std::string& line) { p.tell(line); });
  if (p.page) p.page->obey();
  p.stdin_labels.look(p.live_labels.get(), [&](const std::string& line) { p.tell(line); });
  if (p.team) {
    const std::string word = p.team->look(p.rate, p.checkpointer.get());
    if (!word.empty()) p.tell(word);
    p.team->grid().beat();
    if (p.team->asked_to_stop()) p.stopping = true;
  }
  const std::string failed = p.alerts ? p.alerts->last_error() : "";
  if (failed != p.alert_error) p.tell("alert: " + (p.alert_error = failed));
}

/// Labels of frames that never came: where the stream ended by itself, or people told them.
void tell_of_labels(RunParts& p) {
  const std::int64_t came = p.queue.received();
  const auto [count, last] = p.live_labels ? p.live_labels->waiting()
                             : p.labels    ? p.labels->beyond(came)
                                           : std::pair<std::size_t, std::int64_t>();
  if (count == 0 || (p.labels && p.stopping)) return;
  p.tell("task.labels: " + std::to_string(count) + (count == 1 ? " label is" : " labels are") +
         " of frames that never came, as " + std::to_string(last) + "; " + std::to_string(came) +
         " came");
}

/// That the run has gone through.
std::int64_t samples(const RunParts& p) {
  return p.frames.trained + p.frames.predicted_only;
}

/// Whether a pipeline that drains gets anywhere.
class DrainWatch {
 public:
  bool is_stuck(engine::Trainer& trainer) {
    const engine::Clock::time_point now = engine::Clock::now();
    if (trainer.trained() != std::exchange(trained_, trainer.trained())) moved_ = now;
    // A step that takes that long by itself is slow, and no more.
    const std::chrono::duration<double, std::milli> slow(20 * trainer.monitor().read().bottleneck);
    return now - moved_ > std::max<engine::Clock::duration>(
                              20s, std::chrono::duration_cast<engine::Clock::duration>(slow));
  }

 private:
  std::int64_t trained_ = -1;
  engine::Clock::time_point moved_;
};

/// Records before frames come, which would have to wait for it; whoever looks on is heard
/// meanwhile.
void prepare(RunParts& p) {
  auto prepared = std::async(std::launch::async, [&] { p.trainer.prepare(); });
  while (prepared.wait_for(50ms) != std::future_status::ready) {
    if (p.on_tick) p.on_tick();
  }
  prepared.get();
}

}  // namespace

Run::Run(const Config& config, RunOptions options)
    : parts_(std::make_unique<RunParts>(config, std::move(options))) {}

Run::~Run() = default;

void Run::on_prediction(std::function<void(const Prediction&)> see) {
  parts_->callback.see = std::move(see);
}

void Run::on_event(std::function<void(const std::string& line)> tell) {
  parts_->on_event = std::move(tell);
}

void Run::on_tick(std::function<void()> look) {
  parts_->on_tick = std::move(look);
}

void Run::learn(std::int64_t limit) {
  RunParts& p = *parts_;
  if (p.reader) throw std::logic_error("a run learns once");
  prepare(p);
  p.reader =
      std::make_unique<io::Reader>(std::move(p.source_ahead), p.queue, p.reader_options(limit));
  p.rate_watch = std::make_unique<RateWatch>(*p.reader, p.trainer.monitor());
  p.began = engine::Clock::now();
  if (p.team) p.team->go();
  auto running = std::make_unique<std::future<engine::Outcome>>(std::async(std::launch::async, [&] {
    return p.overload.run(p.samples(), &p.observers, p.pipeline_options(limit));
  }));
  if (!p.resumed.note.empty()) p.tell("checkpoint: " + p.resumed.note);
  if (!p.unfit.empty()) p.tell("optimizer: " + p.unfit);
  look(p, limit);
  DrainWatch drain;
  while (running->wait_for(50ms) != std::future_status::ready) {
    if (p.stopping.load()) {
      p.reader->stop();
      if (drain.is_stuck(p.trainer)) {
        (void)running.release();  // its thread can't be joined
        throw Wedged(
            "the pipeline is wedged: no frame was done for 20 s; the last checkpoint stays");
      }
    }
    look(p, limit);
    if (p.on_tick) p.on_tick();
  }
  p.ended = engine::Clock::now();
  look(p, limit);
  if (!p.trainer.recording_error().empty())
    p.tell("steps ran eagerly, since recording failed: " + p.trainer.recording_error());
  p.queue.stop();
  p.reader->stop();
  p.reader->join();
  p.source_error = p.reader->error();
  tell_of_labels(p);
  if (p.reader->hung()) p.tell("source: hangs while it is closed; it is left to itself");
  engine::Outcome outcome{p.trainer.monitor().tally().counts()};
  std::exception_ptr failure;
  try {
    outcome = running->get();
  } catch (...) {
    failure = std::current_exception();
  }
  if (p.alerts) p.alerts->finish();
  if (p.trainer.is_whole()) p.trainer.dismiss_ranks();
  if (p.team && !failure) {
    const std::string broke = p.team->await_sources();
    if (p.source_error.empty()) p.source_error = broke;
  }
  p.frames = {
      .received = p.queue.received(),
      .trained = outcome.trained,
      .dropped = p.queue.dropped() + outcome.predicted_only,
      .predicted_only = outcome.predicted_only,
      .rejected = p.queue.rejected() + outcome.rejected + outcome.untold + p.feed->pending(),
      .untold = outcome.untold,
      .replayed = outcome.replayed};
  if (failure) std::rethrow_exception(failure);
}

void Run::stop() {
  parts_->stopping = true;
}

void Run::set_rate(double times) {
  parts_->rate = times;
}

std::string Run::reload() {
  return parts_->options.read_again ? parts_->reload.read_again() : "there is no file to read";
}

std::vector<std::string> Run::save() {
  RunParts& p = *parts_;
  const auto& output = p.reload.config().output;
  const bool predicted = p.log.network().count() > 0;
  Outputs outputs;
  // First what was learned.
  const bool whole = p.trainer.is_whole();
  outputs.write(whole ? p.config.checkpoint.dir : "", [&](const std::string&) {
    if (p.checkpointer) p.checkpointer->finish();
    p.checkpoints.write(p.of_all_ranks(p.trainer.checkpoint()),
                        about_weights(p, samples(p), p.ended));
  });
  outputs.write(whole ? output.weights : "", [&](const std::string& file) { save_weights(file); });
  outputs.write(video(), [&](const std::string&) { p.video->finish(); });  // its counts are told
  outputs.write(output.report,
                [&](const std::string& file) { io::write_whole(file, report() + "\n"); });
  outputs.write(p.options.trace, [&](const std::string& file) {
    io::write_whole(file, engine::trace_json(*p.actions, p.trainer.schedule()));
  });
  outputs.write(p.lines ? p.config.output.log : "", [&](const std::string&) {
    p.lines->finish();
    if (!p.lines->error().empty()) throw std::runtime_error(p.lines->error());
  });
  for (std::size_t i = 0; i < p.callback.sinks.size(); ++i)
    outputs.write(p.config.output.sinks[i],
                  [&](const std::string&) { p.callback.sinks[i]->finish(); });
  outputs.write(predicted ? output.loss_plot : "",
                [&](const std::string& file) { draw_loss(p.log, file); });
  outputs.write(predicted && task_type(p.config.task.kind).pictures ? output.prediction : "",
                [&](const std::string& file) { draw_prediction(p.log, p.shape(), file); });
  return outputs.failures();
}

void Run::save_weights(const std::string& path) const {
  const RunParts& p = *parts_;
  io::write_whole(path, stages::to_safetensors(p.of_all_ranks(p.trainer.state()),
                                               about_weights(p, samples(p), p.ended)));
}

std::array<int, 3> Run::shape() const {
  const stages::ImageShape shape = parts_->shape();
  return {int(shape.channels), int(shape.height), int(shape.width)};
}

std::int64_t Run::trained() const {
  return parts_->trainer.trained();
}

bool Run::paused() const {
  return parts_->paused();
}

std::string Run::status() const {
  return parts_->status.text();
}

std::string Run::report() const {
  return make_report(*parts_).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string Run::summary() const {
  return summarize(make_report(*parts_));
}

std::string Run::page() const {
  return parts_->page ? parts_->page->url() : "";
}

std::string Run::video() const {
  return parts_->video ? parts_->video->writer().where() : "";
}

std::vector<std::string> Run::remarks() const {
  const RunParts& p = *parts_;
  std::vector<std::string> all;
  const std::string fit = squash_note(p.config, p.info);
  if (!fit.empty()) all.push_back("source: " + fit);
  if (p.config.correction.kind == "auto" && p.assembled.correction.kind != "none")
    all.push_back("correction: " + describe_correction(p.config, p.assembled));
  if (p.replay) all.push_back("replay: " + describe_replay(p.config, p.assembled, p.live));
  for (const std::string& line : p.assembled.network->remarks) all.push_back("model: " + line);
  if (!p.resumed.path.empty())
    all.push_back("checkpoint: goes on from " + p.resumed.path + ", after " +
                  std::to_string(p.resumed.frames) + " frames");
  return all;
}

const std::string& Run::source_error() const {
  return parts_->source_error;
}

}  // namespace millrace::app
