#include "tools/app/outputs/records.h"

#include "tools/app/assembly.h"
#include "tools/app/outputs/report.h"

namespace millrace::app {

Records::Records(Request& request, const Intake& intake, Learner& learner, RankTeam* team,
                 const Progress& progress)
    : log(learner.trainer, task_type(request.config.task.kind), channels_before(request.config)),
      checkpoints(request.config.checkpoint.dir) {
  const Config& config = request.config;
  engine::Trainer& trainer = learner.trainer;
  if (learner.replay) {
    observers.add_for_all(learner.replay.get());
    log.keep_pictures(trainer.in_slot(0));
  }
  if (!request.options.trace.empty()) {
    actions = std::make_unique<engine::ActionLog>(int(trainer.schedule().workers.size()),
                                                  engine::ActionLog::kCapacity,
                                                  request.options.trace_operators);
    counters = std::make_unique<TraceCounters>(*actions, intake.queue);
    observers.add(counters.get());
  }
  if (!config.output.video.empty()) {
    video = std::make_unique<VideoOut>(intake.shape(), intake.info.fps, config.output.video);
    observers.add(video.get());
  }
  observers.add(&log);  // before those that read its histories
  if (!config.output.log.empty()) {
    lines = std::make_unique<FrameLog>(
        config.output.log, config.output.log_every,
        LogSubject{trainer.monitor(), intake.queue, log.network(), log.baseline(), log.novelty(),
                   learner.assembled.correction.kind});
    if (!request.resumed.path.empty()) lines->resumed(request.resumed.frames);
    observers.add(lines.get());
  }
  raise_alerts(config, intake, trainer);
  callback.sinks = std::move(request.sinks);
  observers.add(&callback);
  if (config.checkpoint.dir.empty()) return;
  // Without checkpoint.every, too: the page, or a reloaded config, may ask for some at any time.
  claim.emplace(config.checkpoint.dir);
  checkpointer = std::make_unique<engine::Checkpointer>(
      config.pipeline.stages * config.pipeline.tensor, config.checkpoint.every,
      [&trainer](int stage) { return trainer.checkpoint(stage); },
      [this, team, about = About{request, learner, progress}](const stages::StateDict& state,
                                                              std::int64_t samples) {
        checkpoints.write(team ? team->grid().put_together(state) : state,
                          about_weights(about, samples, engine::Clock::now()));
      });
}

void Records::raise_alerts(const Config& config, const Intake& intake,
                           const engine::Trainer& trainer) {
  const auto& to = config.novelty;
  if (to.snapshots.empty() && to.webhook.empty() && to.mqtt.empty()) return;
  const stages::ImageShape picture = intake.shape();
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

engine::PipelineOptions Records::pipeline_options(Learner& learner, std::int64_t limit) {
  engine::PipelineOptions pipeline{.limit = limit, .actions = actions.get()};
  // Ranks that learn one network would take a new rate at different samples.
  if (!learner.spread()) pipeline.rate = &learner.rate;
  if (checkpointer) {
    pipeline.after_sample = [this, &learner](int stage, std::int64_t sample) {
      checkpointer->after_sample(
          stage, learner.replay ? learner.replay->fresh(sample) - 1 : sample);
    };
  }
  return pipeline;
}

}  // namespace millrace::app
