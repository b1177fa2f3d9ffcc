#include "tools/app/intake.h"

#include "tools/app/config/task.h"
#include "tools/app/feeds/run_source.h"

namespace millrace::app {
namespace {

/// How many frames may wait.
int queue_capacity(const Config& config, io::Drop drop, bool given) {
  if (given) return 1;                    // a caller's slow pipeline builds up no backlog
  if (drop == io::Drop::never) return 8;  // evens out a reader that decodes in bursts
  // While the pipeline trains on one frame, others wait that will only be predicted, which is
  // quick.
  return config.monitor.policy == "skip" ? 4 : 1;
}

io::SourceInfo info_of(const GivenStream& given) {
  return {.kind = "given",
          .width = int(given.shape[2]),
          .height = int(given.shape[1]),
          .live = given.live};
}

}  // namespace

Intake::Intake(const Config& asked, const SourceOpener& own,
               std::shared_ptr<const GivenStream> from_caller)
    : config(asked),
      given(std::move(from_caller)),
      source(given ? nullptr : own ? own() : io::open_source(source_options(config))),
      info(given ? info_of(*given) : source->info()),
      health(given ? std::make_shared<io::StreamHealth>() : source->health()),
      live(paced_live(config, info) || info.live),
      drop(drop_policy(config, live)),
      queue(queue_capacity(config, drop, given != nullptr), drop),
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
  if (given) return given->ready();
  // Reads no frame beyond the limit, unless some frames may not be trained on.
  const bool exact = drop == io::Drop::never && limit > 0 && config.monitor.policy != "skip" &&
                     config.task.labels.empty() &&
                     task_type(config.task.kind).target != TargetFrom::teller;
  io::ReaderOptions options = reader_options(config, info);
  options.limit = exact ? limit : 0;
  reader_ = std::make_unique<io::Reader>(std::move(source), queue, options);
}

void Intake::end() {
  if (!reader_) return queue.close();
  reader_->stop();
  reader_->leave_hung();
}

void Intake::stop() {
  queue.stop();
  end();
  if (reader_) reader_->join();
}

double Intake::seen_fps() const {
  return reader_ ? reader_->fps() : given_fps.load(std::memory_order_relaxed);
}

std::string Intake::error() const {
  return reader_ ? reader_->error() : "";
}

bool Intake::hung() const {
  return reader_ && reader_->hung();
}

}  // namespace millrace::app
