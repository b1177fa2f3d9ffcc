#include "tools/app/intake.h"

#include "tools/app/config/task.h"

namespace millrace::app {

Intake::Intake(const Config& asked, const SourceOpener& own)
    : config(asked),
      source(open_source(config, own)),
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

void Intake::start(std::int64_t limit) {
  // No frame is read that the limit would leave over, unless some may not be trained on.
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
