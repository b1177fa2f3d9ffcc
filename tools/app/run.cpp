#include "tools/app/run.h"

#include <malloc.h>

#include <algorithm>
#include <future>
#include <utility>

#include "io/files/whole_file.h"
#include "tools/app/assembly.h"
#include "tools/app/feeds/replay_feed.h"
#include "tools/app/outputs/outputs.h"
#include "tools/app/outputs/report.h"
#include "tools/app/parts.h"
#include "tools/app/ranks/rank_grid.h"

namespace millrace::app {
namespace {

using namespace std::chrono_literals;

engine::PipelineOptions pipeline_options(RunParts& p, std::int64_t limit) {
  Learner& learner = p.learner;
  engine::Checkpointer* const checkpointer = p.checkpoints.writer.get();
  engine::PipelineOptions pipeline{.limit = limit, .actions = p.records.actions.get()};
  // Ranks training one network together would apply a new rate at different samples.
  if (weights_are_apart(p.request.config)) pipeline.rate = &learner.rate;
  if (!checkpointer && !learner.memory) return pipeline;
  pipeline.after_sample = [&learner, checkpointer](int stage, std::int64_t sample) {
    if (learner.memory && stage + 1 == learner.trainer.schedule().stages) learner.recall(false);
    if (!checkpointer) return;
    checkpointer->after_sample(stage, learner.replay ? learner.replay->fresh(sample) - 1 : sample);
  };
  return pipeline;
}

/// Whether users or the limit end the run, rather than the stream.
bool is_ending(RunParts& p, const engine::FrameCounts& frames, std::int64_t limit) {
  const std::int64_t learnable = p.learner.feed->taken() - (frames.predicted() - frames.trained);
  return p.progress.stopping.load(std::memory_order_relaxed) || (limit > 0 && learnable >= limit);
}

void look(RunParts& p, std::int64_t limit) {
  p.console.look(!p.progress.learning);
  const engine::FrameCounts frames = p.learner.frames(p.intake);
  // Frames left over at the end say nothing about the rate, unless the run is over this soon.
  if (p.paused()) {
    p.learner.real_time.pause(frames);
  } else if (!is_ending(p, frames, limit) || !p.learner.real_time.began()) {
    p.learner.real_time.note(frames, p.learner.overload.late());
  }
  if (!p.team) return;
  p.console.tell(p.team->look(p.learner.rate, p.checkpoints.writer.get()));
  p.team->grid().beat();
  if (p.team->asked_to_stop()) p.progress.stopping = true;
}

/// Reports labels for frames beyond the end, if the stream ended by itself or users gave them.
void tell_of_labels(RunParts& p, std::int64_t limit) {
  const Request& request = p.request;
  const std::int64_t came = p.intake.queue.received();
  const auto [count, last] = request.live_labels ? request.live_labels->waiting()
                             : request.labels    ? request.labels->beyond(came)
                                                 : std::pair<std::size_t, std::int64_t>();
  if (count == 0) return;
  if (request.labels && is_ending(p, p.learner.frames(p.intake), limit)) return;
  p.console.tell("task.labels: " + std::to_string(count) +
                 (count == 1 ? " label is" : " labels are") + " for frames beyond the end, up to " +
                 std::to_string(last) + "; the run received " + std::to_string(came));
}

/// Reports classes that users could have labelled but never did.
void tell_of_classes(RunParts& p) {
  if (!p.request.live_labels || !p.learner.memory) return;
  const std::vector<std::int64_t> counts = p.learner.memory->told().counts;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0 && !p.learner.known.knows(i))
      p.console.tell("task.classes: no frame was labelled \"" + p.request.config.task.classes[i] +
                     "\", so it is never the answer");
  }
}

/// Records the steps before frames arrive, which would otherwise wait. Keeps ticking.
void prepare(RunParts& p) {
  auto prepared = std::async(std::launch::async, [&] { p.learner.trainer.prepare(); });
  while (prepared.wait_for(50ms) != std::future_status::ready)
    if (p.console.on_tick) p.console.on_tick();
  prepared.get();
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // eager steps free and allocate all the time
}

using Running = std::unique_ptr<std::future<engine::Outcome>>;

/// Starts the source, the pipeline and the other ranks.
Running begin(RunParts& p, std::int64_t limit) {
  p.intake.start(limit);
  p.progress.began = engine::Clock::now();
  p.progress.learning = true;
  if (p.team) p.team->go();
  auto running =
      std::make_unique<std::future<engine::Outcome>>(std::async(std::launch::async, [&p, limit] {
        return p.learner.overload.run(p.learner.samples(), &p.records.observers,
                                      pipeline_options(p, limit));
      }));
  if (!p.request.resumed.note.empty()) p.console.tell("checkpoint: " + p.request.resumed.note);
  if (!p.learner.unfit.empty()) p.console.tell("optimizer: " + p.learner.unfit);
  look(p, limit);
  return running;
}

/// Serves users until the pipeline has ended. Throws Wedged if it doesn't after a stop.
void attend(RunParts& p, std::int64_t limit, Running& running) {
  engine::Monitor& monitor = p.learner.trainer.monitor();
  std::int64_t trained_before = -1;
  engine::Clock::time_point moved;
  while (running->wait_for(50ms) != std::future_status::ready) {
    if (p.progress.stopping.load()) {
      p.intake.end();
      const std::int64_t trained = monitor.trained();
      if (trained != std::exchange(trained_before, trained)) moved = engine::Clock::now();
      // A single step may take that long in a slow pipeline.
      const double patience_s = std::max(20.0, 20e-3 * monitor.read().bottleneck);
      if (engine::Clock::now() - moved > std::chrono::duration<double>(patience_s)) {
        (void)running.release();  // its thread can't be joined
        throw Wedged(
            "the pipeline is stuck: no frame finished in 20 s; the last checkpoint is kept");
      }
    }
    look(p, limit);
    if (p.console.on_tick) p.console.on_tick();
  }
  p.progress.ended = engine::Clock::now();
  p.progress.learning = false;
}

void end_source(RunParts& p, std::int64_t limit) {
  look(p, limit);
  p.intake.stop();
  p.progress.source_error = p.intake.error();
  tell_of_labels(p, limit);
  if (p.intake.hung()) p.console.tell("source: hung; its thread was abandoned");
}

/// Counts all frames and lets the other ranks go. Rethrows a worker's exception.
void finish(RunParts& p, std::future<engine::Outcome>& running) {
  engine::Trainer& trainer = p.learner.trainer;
  engine::Outcome outcome;
  std::exception_ptr failure;
  try {
    outcome = running.get();
    p.learner.recall(true);
  } catch (...) {
    failure = std::current_exception();
    outcome = {trainer.monitor().tally().counts()};
  }
  if (trainer.is_whole()) trainer.dismiss_ranks();
  if (p.team && !failure) {
    const std::string broke = p.team->await_sources();
    if (p.progress.source_error.empty()) p.progress.source_error = broke;
  }
  if (!failure) tell_of_classes(p);
  p.progress.frames = p.intake.frames(outcome);
  p.progress.frames.rejected += outcome.rejected + p.learner.feed->pending();
  if (failure) std::rethrow_exception(failure);
}

nlohmann::ordered_json report_of(RunParts& p) {
  return make_report(p.request, p.progress, p.team.get(), p.intake, p.learner, p.records);
}

}  // namespace

RunParts::RunParts(const Config& given, RunOptions options)
    : request(given, std::move(options)),
      team(request.options.ranks ? std::make_unique<RankTeam>(*request.options.ranks,
                                                              request.config, request.options.waits)
                                 : nullptr),
      intake(request.config, request.options.open_source, request.options.given),
      learner(request, intake, team.get(), progress.stopping),
      records(request, intake, learner),
      checkpoints(request, progress, learner, team.get()),
      page(request.options.serve || !request.config.mqtt.broker.empty()
               ? std::make_unique<LiveView>(request, intake, learner, records, checkpoints)
               : nullptr),
      console(request, intake, learner, records, checkpoints, page.get()) {
  if (page) records.observers.add(page.get());
  learner.feed->rest_while([this] {
    return page && page->rests() && !progress.stopping.load(std::memory_order_relaxed);
  });
}

int exit_code_of(const std::exception& error) {
  return dynamic_cast<const ConfigError*>(&error)       ? 2
         : dynamic_cast<const io::SourceError*>(&error) ? 3
                                                        : 1;
}

Run::Run(const Config& config, RunOptions options)
    : parts_(std::make_unique<RunParts>(config, std::move(options))) {}

Run::~Run() = default;

void Run::on_prediction(std::function<void(const Prediction&)> see) {
  parts_->records.add(std::move(see));
}

void Run::on_event(std::function<void(const std::string& line)> tell) {
  parts_->console.on_event = std::move(tell);
}

void Run::on_tick(std::function<void()> look) {
  parts_->console.on_tick = std::move(look);
}

void Run::learn(std::int64_t limit) {
  RunParts& p = *parts_;
  if (p.progress.began != engine::Clock::time_point()) throw std::logic_error("a run learns once");
  const std::int64_t choice = p.learner.trainer.schedule().samples_a_choice();
  limit = (limit + choice - 1) / choice * choice;  // whole minibatches
  prepare(p);
  Running running = begin(p, limit);
  attend(p, limit, running);
  end_source(p, limit);
  finish(p, *running);
}

void Run::stop() {
  parts_->progress.stopping = true;
}

void Run::set_rate(double times) {
  parts_->learner.rate = times;
}

std::string Run::reload() {
  return parts_->console.reload();
}

std::vector<std::string> Run::save() {
  RunParts& p = *parts_;
  Records& records = p.records;
  engine::Trainer& trainer = p.learner.trainer;
  const auto& output = p.console.config.output;
  const bool predicted = records.log.network().count() > 0, whole = trainer.is_whole();
  std::vector<std::string> failures;
  const auto write = [&](const std::string& path, const auto& how) {
    if (path.empty()) return;
    try {
      how(path);
    } catch (const std::exception& error) {
      failures.push_back(error.what());
    }
  };
  write(whole ? p.request.config.checkpoint.dir : "",
        [&](const std::string&) { p.checkpoints.finish(); });
  write(whole ? output.weights : "", [&](const std::string& file) { save_weights(file); });
  write(video(), [&](const std::string&) { records.video->finish(); });  // the report counts frames
  if (records.alerts) records.alerts->finish();                          // the report counts alerts
  p.console.tell_alerts();
  write(output.report, [&](const std::string& file) { io::write_whole(file, report() + "\n"); });
  write(p.request.options.trace, [&](const std::string& file) {
    io::write_whole(file, engine::trace_json(*records.actions, trainer.schedule()));
  });
  write(p.request.config.output.log, [&](const std::string&) {
    records.lines->finish();
    if (!records.lines->error().empty()) throw std::runtime_error(records.lines->error());
  });
  for (std::size_t i = 0; i < records.sinks.size(); ++i) {
    write(p.request.config.output.sinks[i],
          [&](const std::string&) { records.sinks[i]->finish(); });
  }
  if (!predicted) return failures;
  write(output.loss_plot, [&](const std::string& file) { draw_loss(records.log, file); });
  write(task_type(p.request.config.task.kind).pictures ? output.prediction : "",
        [&](const std::string& file) { draw_prediction(records.log, p.intake.shape(), file); });
  return failures;
}

bool Run::uses_stdout() const {
  return app::uses_stdout(parts_->console.config, parts_->request.options.trace);
}

void Run::save_weights(const std::string& path) const {
  parts_->checkpoints.write_weights(path);
}

std::array<int, 3> Run::shape() const {
  const stages::ImageShape shape = parts_->intake.shape();
  return {int(shape.channels), int(shape.height), int(shape.width)};
}

std::int64_t Run::predicted() const {
  return parts_->learner.frames(parts_->intake).predicted();
}

bool Run::paused() const {
  return parts_->paused();
}

std::string Run::status(bool verbose) const {
  return parts_->console.status(verbose);
}

std::string Run::report() const {
  return report_of(*parts_).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string Run::summary() const {
  return summarize(report_of(*parts_));
}

std::string Run::page() const {
  return parts_->page ? parts_->page->url() : "";
}

std::string Run::video() const {
  return parts_->records.video ? parts_->records.video->writer().where() : "";
}

std::string Run::watching() const {
  constexpr std::size_t kLongest = 60;  // a pipeline may fill a screen
  const RunParts& p = *parts_;
  const io::SourceInfo& info = p.intake.info;
  std::string source = p.request.source();
  if (source.size() > kLongest) source.replace(kLongest - 3, std::string::npos, "...");
  return "watching " + source + ": " + std::to_string(info.width) + "x" +
         std::to_string(info.height) +
         (info.fps > 0 ? engine::format(" at %.4g frames/s", info.fps) : "") + "; " +
         (p.records.answers ? "its class and what is new are" : "what is new is") +
         " reported here" + (page().empty() ? "" : " and on the page");
}

std::vector<std::string> Run::remarks(bool verbose) const {
  const RunParts& p = *parts_;
  const Config& config = p.request.config;
  const engine::TrainerOptions& assembled = p.learner.assembled;
  const Resumed& resumed = p.request.resumed;
  std::vector<std::string> all;
  if (config.empty_file)
    all.push_back("config: " + config.name + " is empty, so every key has its default");
  if (!names_source(config) && !p.request.source().empty())
    all.push_back("source: not set, using the default, " + config.source.uri);
  const std::string fit = squash_note(config, p.intake.info);
  if (!fit.empty()) all.push_back("source: " + fit);
  if (verbose && config.correction.kind == "auto" && assembled.correction.kind != "none")
    all.push_back("correction: " + describe_correction(config, assembled));
  if (verbose && (p.learner.replay || p.learner.memory))
    all.push_back("replay: " + describe_replay(config, assembled, p.intake.live));
  if (config.task.kind == "label" && config.weights.learn && !p.learner.memory &&
      (config.replay.kind == "auto" || p.team)) {
    all.push_back(
        "replay: none, so the network may forget a class while another is seen: " +
        std::string(
            p.team ? "several ranks remember no frame; one process does"
            : !config.pipeline.replicas.empty()
                ? "replicated stages remember no frame; without pipeline.replicas they do"
            : stages::ends_in_linear(*assembled.network)
                ? "[optimizer], [correction] or [guard] is set; replay.kind = \"ridge\" remembers"
                : "it does not end in a linear layer; replay.kind = \"reservoir\" remembers"));
  }
  if (p.request.labels) {
    for (const std::string& name : p.request.labels->without_rows())
      all.push_back("task.labels: " + config.task.labels + " has no frame of the class \"" + name +
                    "\"");
  }
  for (const std::string& line : assembled.network->remarks) all.push_back("model: " + line);
  if (const std::string line = guard_remark(p.learner.trainer); verbose && !line.empty())
    all.push_back(line);
  if (!resumed.path.empty())
    all.push_back("checkpoint: resuming from " + resumed.path + ", after " +
                  std::to_string(resumed.frames) + " frames");
  return all;
}

const std::string& Run::source_error() const {
  return parts_->progress.source_error;
}

}  // namespace millrace::app
