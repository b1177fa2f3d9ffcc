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
  p.console.events.tell([&](const std::string& line) { p.console.tell(line); });
  const std::string rate_change = p.learner.rate_watch->look();
  if (!rate_change.empty()) p.console.tell("source: " + rate_change);
  const std::string change = p.learner.overload.look();
  if (!change.empty()) p.console.tell("overload: " + change);
  // What is lost at the end, when no more frames are wanted, is no word on the rate.
  const bool ending =
      p.progress.stopping.load(std::memory_order_relaxed) || (limit > 0 && p.learner.feed->taken() >= limit);
  if (!ending) p.learner.real_time.note(frame_counts(p.intake.queue, p.learner.trainer), p.learner.overload.late());
  if (p.records.lines) p.records.lines->write();
  p.records.writes.look(p.records.checkpointer ? p.records.checkpointer->error() : "", p.records.lines ? p.records.lines->error() : "",
                [&](const std::string& line) { p.console.tell(line); });
  if (p.console.page) p.console.page->obey();
  p.console.stdin_labels.look(p.request.live_labels.get(), [&](const std::string& line) { p.console.tell(line); });
  if (p.team) {
    const std::string word = p.team->look(p.learner.rate, p.records.checkpointer.get());
    if (!word.empty()) p.console.tell(word);
    p.team->grid().beat();
    if (p.team->asked_to_stop()) p.progress.stopping = true;
  }
  const std::string failed = p.records.alerts ? p.records.alerts->last_error() : "";
  if (failed != p.progress.alert_error) p.console.tell("alert: " + (p.progress.alert_error = failed));
}

/// Labels of frames that never came: where the stream ended by itself, or people told them.
void tell_of_labels(RunParts& p) {
  const std::int64_t came = p.intake.queue.received();
  const auto [count, last] = p.request.live_labels ? p.request.live_labels->waiting()
                             : p.request.labels    ? p.request.labels->beyond(came)
                                           : std::pair<std::size_t, std::int64_t>();
  if (count == 0 || (p.request.labels && p.progress.stopping)) return;
  p.console.tell("task.labels: " + std::to_string(count) + (count == 1 ? " label is" : " labels are") +
         " of frames that never came, as " + std::to_string(last) + "; " + std::to_string(came) +
         " came");
}

/// That the run has gone through.
std::int64_t samples(const RunParts& p) {
  return p.progress.frames.trained + p.progress.frames.predicted_only;
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
  auto prepared = std::async(std::launch::async, [&] { p.learner.trainer.prepare(); });
  while (prepared.wait_for(50ms) != std::future_status::ready) {
    if (p.console.on_tick) p.console.on_tick();
  }
  prepared.get();
}

}  // namespace

Run::Run(const Config& config, RunOptions options)
    : parts_(std::make_unique<RunParts>(config, std::move(options))) {}

Run::~Run() = default;

void Run::on_prediction(std::function<void(const Prediction&)> see) {
  parts_->records.callback.see = std::move(see);
}

void Run::on_event(std::function<void(const std::string& line)> tell) {
  parts_->console.on_event = std::move(tell);
}

void Run::on_tick(std::function<void()> look) {
  parts_->console.on_tick = std::move(look);
}

void Run::learn(std::int64_t limit) {
  RunParts& p = *parts_;
  if (p.intake.reader) throw std::logic_error("a run learns once");
  prepare(p);
  p.intake.start(limit);
  p.learner.rate_watch = std::make_unique<RateWatch>(*p.intake.reader, p.learner.trainer.monitor());
  p.progress.began = engine::Clock::now();
  if (p.team) p.team->go();
  auto running = std::make_unique<std::future<engine::Outcome>>(std::async(std::launch::async, [&] {
    return p.learner.overload.run(p.learner.samples(), &p.records.observers, p.records.pipeline_options(p.learner, limit));
  }));
  if (!p.request.resumed.note.empty()) p.console.tell("checkpoint: " + p.request.resumed.note);
  if (!p.learner.unfit.empty()) p.console.tell("optimizer: " + p.learner.unfit);
  look(p, limit);
  DrainWatch drain;
  while (running->wait_for(50ms) != std::future_status::ready) {
    if (p.progress.stopping.load()) {
      p.intake.reader->stop();
      if (drain.is_stuck(p.learner.trainer)) {
        (void)running.release();  // its thread can't be joined
        throw Wedged(
            "the pipeline is wedged: no frame was done for 20 s; the last checkpoint stays");
      }
    }
    look(p, limit);
    if (p.console.on_tick) p.console.on_tick();
  }
  p.progress.ended = engine::Clock::now();
  look(p, limit);
  if (!p.learner.trainer.recording_error().empty())
    p.console.tell("steps ran eagerly, since recording failed: " + p.learner.trainer.recording_error());
  p.intake.stop();
  p.progress.source_error = p.intake.reader->error();
  tell_of_labels(p);
  if (p.intake.reader->hung()) p.console.tell("source: hangs while it is closed; it is left to itself");
  engine::Outcome outcome{p.learner.trainer.monitor().tally().counts()};
  std::exception_ptr failure;
  try {
    outcome = running->get();
  } catch (...) {
    failure = std::current_exception();
  }
  if (p.records.alerts) p.records.alerts->finish();
  if (p.learner.trainer.is_whole()) p.learner.trainer.dismiss_ranks();
  if (p.team && !failure) {
    const std::string broke = p.team->await_sources();
    if (p.progress.source_error.empty()) p.progress.source_error = broke;
  }
  p.progress.frames = {
      .received = p.intake.queue.received(),
      .trained = outcome.trained,
      .dropped = p.intake.queue.dropped() + outcome.predicted_only,
      .predicted_only = outcome.predicted_only,
      .rejected = p.intake.queue.rejected() + outcome.rejected + outcome.untold + p.learner.feed->pending(),
      .untold = outcome.untold,
      .replayed = outcome.replayed};
  if (failure) std::rethrow_exception(failure);
}

void Run::stop() {
  parts_->progress.stopping = true;
}

void Run::set_rate(double times) {
  parts_->learner.rate = times;
}

std::string Run::reload() {
  return parts_->request.options.read_again ? parts_->console.reload.read_again() : "there is no file to read";
}

std::vector<std::string> Run::save() {
  RunParts& p = *parts_;
  const auto& output = p.console.reload.config().output;
  const bool predicted = p.records.log.network().count() > 0;
  Outputs outputs;
  // First what was learned.
  const bool whole = p.learner.trainer.is_whole();
  outputs.write(whole ? p.request.config.checkpoint.dir : "", [&](const std::string&) {
    if (p.records.checkpointer) p.records.checkpointer->finish();
    p.records.checkpoints.write(p.with_other_ranks(p.learner.trainer.checkpoint()),
                        about_weights({p.request, p.learner, p.progress}, samples(p), p.progress.ended));
  });
  outputs.write(whole ? output.weights : "", [&](const std::string& file) { save_weights(file); });
  outputs.write(video(), [&](const std::string&) { p.records.video->finish(); });  // its counts are told
  outputs.write(output.report,
                [&](const std::string& file) { io::write_whole(file, report() + "\n"); });
  outputs.write(p.request.options.trace, [&](const std::string& file) {
    io::write_whole(file, engine::trace_json(*p.records.actions, p.learner.trainer.schedule()));
  });
  outputs.write(p.records.lines ? p.request.config.output.log : "", [&](const std::string&) {
    p.records.lines->finish();
    if (!p.records.lines->error().empty()) throw std::runtime_error(p.records.lines->error());
  });
  for (std::size_t i = 0; i < p.records.callback.sinks.size(); ++i)
    outputs.write(p.request.config.output.sinks[i],
                  [&](const std::string&) { p.records.callback.sinks[i]->finish(); });
  outputs.write(predicted ? output.loss_plot : "",
                [&](const std::string& file) { draw_loss(p.records.log, file); });
  outputs.write(predicted && task_type(p.request.config.task.kind).pictures ? output.prediction : "",
                [&](const std::string& file) { draw_prediction(p.records.log, p.intake.shape(), file); });
  return outputs.failures();
}

void Run::save_weights(const std::string& path) const {
  const RunParts& p = *parts_;
  io::write_whole(path, stages::to_safetensors(p.with_other_ranks(p.learner.trainer.state()),
                                               about_weights({p.request, p.learner, p.progress}, samples(p), p.progress.ended)));
}

std::array<int, 3> Run::shape() const {
  const stages::ImageShape shape = parts_->intake.shape();
  return {int(shape.channels), int(shape.height), int(shape.width)};
}

std::int64_t Run::trained() const {
  return parts_->learner.trainer.trained();
}

bool Run::paused() const {
  return parts_->console.paused();
}

std::string Run::status() const {
  return parts_->console.status.text();
}

std::string Run::report() const {
  return make_report(*parts_).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string Run::summary() const {
  return summarize(make_report(*parts_));
}

std::string Run::page() const {
  return parts_->console.page ? parts_->console.page->url() : "";
}

std::string Run::video() const {
  return parts_->records.video ? parts_->records.video->writer().where() : "";
}

std::vector<std::string> Run::remarks() const {
  const RunParts& p = *parts_;
  std::vector<std::string> all;
  const std::string fit = squash_note(p.request.config, p.intake.info);
  if (!fit.empty()) all.push_back("source: " + fit);
  if (p.request.config.correction.kind == "auto" && p.learner.assembled.correction.kind != "none")
    all.push_back("correction: " + describe_correction(p.request.config, p.learner.assembled));
  if (p.learner.replay) all.push_back("replay: " + describe_replay(p.request.config, p.learner.assembled, p.intake.live));
  for (const std::string& line : p.learner.assembled.network->remarks) all.push_back("model: " + line);
  if (!p.request.resumed.path.empty())
    all.push_back("checkpoint: goes on from " + p.request.resumed.path + ", after " +
                  std::to_string(p.request.resumed.frames) + " frames");
  return all;
}

const std::string& Run::source_error() const {
  return parts_->progress.source_error;
}

}  // namespace millrace::app
