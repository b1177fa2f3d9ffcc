#include "tools/app/intake.h"

#include "tools/app/config/task.h"
#include "tools/app/feeds/run_source.h"

namespace millrace::app {
namespace {

/// How many frames may wait.
int queue_capacity(const Config& config, io::Drop drop) {
  if (drop == io::Drop::never) return 8;  // evens out a reader that decodes in bursts
  // While the pipeline trains on one frame, others wait that will only be predicted, which is
  // quick.
  return config.monitor.policy == "skip" ? 4 : 1;
}

}  // namespace

Intake::Intake(const Config& asked, const SourceOpener& own)
    : config(asked),
      source(own ? own() : io::open_source(source_options(config))),
      info(source->info()),
      health(source->health()),
      live(paced_live(config, info) || info.live),
      drop(drop_policy(config, live)),
      queue(queue_capacity(config, drop), drop),
      resizer(resizer_options(config, info)) {}

stages::ImageShape Intake::shape() const {
  return {config.source.channels, resizer.height(), resizer.width()};
}

double Intake::fps() const {
  return config.monitor.fps > 0 ? config.monitor.fps : info.fps;
}

engine::FrameCounts Intake::frames(const engine::FateCounts& fates) const {
  return {.received = queue.received(),
          .trained = fates.trained,
          .dropped = queue.dropped() + fates.predicted_only,
          .predicted_only = fates.predicted_only,
          .rejected = queue.rejected() + fates.untold,
          .untold = fates.untold,
          .replayed = fates.replayed};
}

void Intake::start(std::int64_t limit) {
  // Reads no frame beyond the limit, unless some frames may not be trained on.
  const bool exact = drop == io::Drop::never && limit > 0 && config.monitor.policy != "skip" &&
                     config.task.labels.empty() &&
                     task_type(config.task.kind).target != TargetFrom::teller;
  io::ReaderOptions options = reader_options(config, info);
  options.limit = exact ? limit : 0;
  reader = std::make_unique<io::Reader>(std::move(source), queue, options);
}

void Intake::stop() {
  queue.stop();
  reader->stop();
  reader->join();
}

}  // namespace millrace::app
