#include "tools/app/parts.h"

#include <algorithm>
#include <utility>

#include "tools/app/plugins/plugins.h"
#include "tools/app/assembly.h"
#include "tools/app/correction_choice.h"
#include "tools/app/feeds/next_frame_feed.h"
#include "tools/app/outputs/outputs.h"
#include "tools/app/feeds/replay_options.h"
#include "tools/app/outputs/report.h"
#include "tools/app/feeds/run_source.h"
#include "tools/app/feeds/teacher_feed.h"

namespace millrace::app {
namespace {

/// `options` that name what can't be had are an error of their own name.
template <typename Check>
void check_option(const char* name, Check check) {
  try {
    check();
  } catch (const std::invalid_argument& error) {
    throw ConfigError(name + std::string(": ") + error.what());
  }
}

/// The sinks that output.sinks asks plug-ins for, "NAME:ARGUMENT" each.
std::vector<std::unique_ptr<Sink>> make_sinks(const Config& config) {
  std::vector<std::unique_ptr<Sink>> made;
  for (const std::string& asked : config.output.sinks) {
    const std::size_t colon = std::min(asked.find(':'), asked.size());
    const std::string name = asked.substr(0, colon);
    const auto& types = sink_types();
    const auto type = std::find_if(types.begin(), types.end(),
                                   [&](const SinkType& one) { return one.name == name; });
    if (type == types.end()) {
      std::string known;
      for (const SinkType& one : types) known += (known.empty() ? "" : ", ") + one.name;
      throw config.error("output.sinks", "unknown sink \"" + name + "\"; plug-ins bring " +
                                             (known.empty() ? "none" : known));
    }
    try {
      made.push_back(type->make(asked.substr(std::min(colon + 1, asked.size()))));
    } catch (const std::invalid_argument& error) {
      throw config.error("output.sinks", name + ": " + error.what());
    }
  }
  return made;
}

/// F as the config has it, or else the source.
double rate_of(const Config& config, const io::SourceInfo& info) {
  return config.monitor.fps > 0 ? config.monitor.fps : info.fps;
}

}  // namespace

/// A config that is found right before any source is opened, and what it makes of the network.
struct CheckedConfig {
  CheckedConfig(const Config& given, const RunOptions& options) : config(given) {
    settle(config);
    trainer = assemble(config, configured_shape(config), &resumed);
    if (options.ranks) require_ranks(config, trainer, options.ranks->ranks());
    if (!options.ranks && config.pipeline.tensor > 1) {
      throw config.error("pipeline.tensor", std::to_string(config.pipeline.tensor) +
                                                " ranks are to share modules: run it by mpirun -n");
    }
    if (!options.ranks && config.source.uris.size() > 1) {
      throw config.error("source.uris", std::to_string(config.source.uris.size()) +
                                            " pipelines learn one network: run it by mpirun -n");
    }
    labels = configured_labels(config);
    live_labels = app::live_labels(config);
    if (classes() > 0) require_classes(config, *trainer.network, classes());
    if (config.task.labels == "http" && !options.serve)
      throw config.error("task.labels", "\"http\" needs the page: --serve");
    require_writable(config);
    if (!options.trace.empty()) check_option("--trace", [&] { require_writable(options.trace); });
    if (options.serve)
      check_option("--serve", [&] { page::web_options(options.serve_at, options.token); });
    sinks = make_sinks(config);
  }

  /// That frames are told to be of; 0: the source tells.
  int classes() const {
    return int(labels ? labels->classes().size() : live_labels ? config.task.classes.size() : 0);
  }

  Config config;
  engine::TrainerOptions trainer;
  Resumed resumed;
  std::optional<io::Labels> labels;
  std::shared_ptr<io::LiveLabels> live_labels;
  std::vector<std::unique_ptr<Sink>> sinks;
};

RunParts::RunParts(const Config& given, RunOptions options)
    : RunParts(CheckedConfig(given, options), std::move(options)) {}

RunParts::RunParts(CheckedConfig checked, RunOptions&& given)
    : config(std::move(checked.config)),
      resumed(std::move(checked.resumed)),
      options(std::move(given)),
      team(options.ranks ? std::make_unique<RankTeam>(*options.ranks, config) : nullptr),
      labels(std::move(checked.labels)),
      live_labels(std::move(checked.live_labels)),
      source_ahead(open_source(config, options.open_source)),
      info(source_ahead->info()),
      health(source_ahead->health()),
      task(task_type(config.task.kind)),
      live(paced_live(config, info) || info.live),
      drop(drop_policy(config, live)),
      queue(queue_capacity(config, drop), drop),
      resizer(resizer_options(config, info)),
      assembled(whole(std::move(checked.trainer))),
      trainer(assembled),
      unfit(assembled.weights.empty() ? "" : unfit_state(assembled.weights, trainer.checkpoint())),
      feed(make_feed()),
      replay(make_replay()),
      log(trainer, task_type(config.task.kind), channels_before(config)),
      callback(),
      overload(config, trainer, live),
      video(make_video()),
      lines(make_lines()),
      checkpointer(make_checkpointer()),
      page(make_page()),
      reload(config, options.read_again, {rate, trainer.monitor(), info.fps, checkpointer.get()}) {
  assembled.weights.clear();
  std::unique_ptr<io::Teller> teller = make_teller();
  if (teller) source_ahead = io::with_teller(std::move(source_ahead), std::move(teller));
  if (replay) {
    observers.add_for_all(replay.get());
    log.keep_pictures(trainer.in_slot(0));
  }
  callback.sinks = std::move(checked.sinks);
  if (!options.trace.empty()) {
    actions =
        std::make_unique<engine::ActionLog>(int(trainer.schedule().workers.size()),
                                            engine::ActionLog::kCapacity, options.trace_operators);
    counters = std::make_unique<TraceCounters>(*actions, queue);
    observers.add(counters.get());
  }
  if (video) observers.add(video.get());
  if (page) observers.add(page.get());
  observers.add(&log);  // before those that read its histories
  if (lines && !resumed.path.empty()) lines->resumed(resumed.frames);
  if (lines) observers.add(lines.get());
  make_alerts();
  observers.add(&callback);
  if (team) team->prepare(trainer, rate_of(config, info));
  if (team && team->grid().copies() > 1)
    lockstep = std::make_unique<LockstepFeed>(*feed, team->grid().copies_group());
  if (team && team->grid().tensor() > 1)
    shared_feed = std::make_unique<SharedFeed>(samples(), team->grid().group(), trainer);
  if (lockstep || shared_feed) {
    team->grid().pipeline().on_end_of_stream = [this] {
      if (lockstep) lockstep->end();
      if (shared_feed) shared_feed->end();
    };
  }
  feed->rest_while([this] { return paused() && !stopping.load(std::memory_order_relaxed); });
}

engine::TrainerOptions RunParts::whole(engine::TrainerOptions options) const {
  if (options.sample != shape()) options = assemble(config, shape());  // as the source has it
  if (task.target == TargetFrom::label && !labels && !live_labels)
    require_classes(config, *options.network, info.classes);
  options.fps = rate_of(config, info);
  if (team) team->grid().share(config, options);
  options.rank_of_worker = config.pipeline.ranks;
  // Where frames come at their own rate, a prediction of the next one is made before it is there; a
  // teacher works while stages do.
  options.late_targets =
      ((task.target == TargetFrom::later_frame && live) || task.target == TargetFrom::teacher) &&
      config.pipeline.replicas.empty() && !options.exchange;
  return options;
}

std::unique_ptr<io::Teller> RunParts::make_teller() const {
  if (labels) return io::teller_of(*labels);
  if (live_labels) return io::teller_of(live_labels);
  return open_teller(config, info, resizer_options(config, info), trainer.output_shape());
}

std::unique_ptr<FrameFeed> RunParts::make_feed() {
  const bool late = trainer.late_targets();
  const int slots = trainer.schedule().slots();
  if (task.target != TargetFrom::teacher) return frame_feed(config, queue, resizer, late, slots);
  return std::make_unique<TeacherFeed>(queue, resizer,
                                       Teacher(config, shape(), trainer.output_shape()), late,
                                       slots);
}

std::unique_ptr<ReplayFeed> RunParts::make_replay() {
  const ReplayOptions replay = replay_options(config, assembled, resumed.frames);
  if (replay.kind == ReplayKind::none) return nullptr;
  return std::make_unique<ReplayFeed>(trainer, *feed, live, replay);
}

std::unique_ptr<VideoOut> RunParts::make_video() {
  if (config.output.video.empty()) return nullptr;
  return std::make_unique<VideoOut>(shape(), info.fps, config.output.video);
}

void RunParts::make_alerts() {
  const auto& to = config.novelty;
  if (to.snapshots.empty() && to.webhook.empty() && to.mqtt.empty()) return;
  const stages::ImageShape picture = shape();
  const bool pictures =
      task_type(config.task.kind).pictures &&
      trainer.target_elements() == std::size_t(picture.channels * picture.height * picture.width);
  alerts = std::make_unique<Alerts>(AlertOptions{.snapshots = pictures ? to.snapshots : "",
                                                 .webhook = to.webhook,
                                                 .mqtt = to.mqtt,
                                                 .topic = to.topic,
                                                 .source = config.source.uri,
                                                 .channels = int(picture.channels),
                                                 .height = int(picture.height),
                                                 .width = int(picture.width)});
  alert_watch = std::make_unique<AlertWatch>(log.novelty(), *alerts, pictures);
  observers.add(alert_watch.get());
}

std::unique_ptr<FrameLog> RunParts::make_lines() {
  const auto& output = config.output;
  if (output.log.empty()) return nullptr;
  return std::make_unique<FrameLog>(
      output.log, output.log_every,
      LogSubject{trainer.monitor(), queue, log.network(), log.baseline(), log.novelty(),
                 assembled.correction.kind});
}

std::unique_ptr<engine::Checkpointer> RunParts::make_checkpointer() {
  // A page, or the config read anew, may ask for some at any time.
  if (config.checkpoint.dir.empty()) return nullptr;
  claim.emplace(config.checkpoint.dir);
  return std::make_unique<engine::Checkpointer>(
      config.pipeline.stages * config.pipeline.tensor, config.checkpoint.every,
      [this](int stage) { return trainer.checkpoint(stage); },
      [this](const stages::StateDict& state, std::int64_t samples) {
        checkpoints.write(team ? team->grid().put_together(state) : state,
                          about_weights(*this, samples, engine::Clock::now()));
      });
}

std::unique_ptr<LiveView> RunParts::make_page() {
  if (!options.serve) return nullptr;
  return std::make_unique<LiveView>(
      config, shape(), options.serve_at, options.token,
      LiveSubject{trainer, queue, log, real_time, health, checkpointer.get(), writes, rate,
                  describe_correction(config, assembled), local_note(assembled), resumed.frames,
                  config.task.labels == "http" ? live_labels : nullptr});
}

io::ReaderOptions RunParts::reader_options(std::int64_t limit) const {
  // Where nothing is dropped, no frame is read that the limit would leave over.
  const bool exact = drop == io::Drop::never && limit > 0 &&
                     config.monitor.policy != "skip" &&  // of which some are only predicted
                     config.task.labels.empty() &&       // which may leave frames out
                     task.target != TargetFrom::teller;
  io::ReaderOptions options = app::reader_options(config, info);
  options.limit = exact ? limit : 0;
  return options;
}

engine::PipelineOptions RunParts::pipeline_options(std::int64_t limit) {
  engine::PipelineOptions pipeline{.limit = limit, .rate = &rate, .actions = actions.get()};
  if (shared_feed || lockstep)
    pipeline.rate = nullptr;  // ranks that learn one thing would take another at two samples
  if (checkpointer) {
    pipeline.after_sample = [this](int stage, std::int64_t sample) {
      checkpointer->after_sample(stage, replay ? replay->fresh(sample) - 1 : sample);
    };
  }
  return pipeline;
}

}  // namespace millrace::app
