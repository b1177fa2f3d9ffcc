#include "tools/app/feeds/copy_source.h"

#include <utility>

#include "tools/app/feeds/next_frame_feed.h"

namespace millrace::app {
namespace {

Config with_uri(Config config, int copy) {
  config.source.uri = config.source.uris[std::size_t(copy)];
  return config;
}

std::string size_text(std::int64_t width, std::int64_t height) {
  return std::to_string(width) + "x" + std::to_string(height);
}

}  // namespace

CopySource::CopySource(const Config& config, int copy, const stages::ImageShape& sample)
    : config_(with_uri(config, copy)), intake_(config_) {
  const stages::ImageShape shape = intake_.shape();
  if (shape.width == sample.width && shape.height == sample.height) return;
  throw config.error("source.uris", "frames of " + io::redacted(config_.source.uri) + " are " +
                                        size_text(shape.width, shape.height) +
                                        ", the first source's " +
                                        size_text(sample.width, sample.height) +
                                        ": set source.width and source.height");
}

FrameFeed& CopySource::feed(engine::Trainer& trainer) {
  feed_ = frame_feed(config_, intake_.queue, intake_.resizer, trainer.late_targets(),
                     trainer.schedule().slots());
  return *feed_;
}

SourceReport CopySource::finish(const engine::Outcome& outcome, const engine::Reading& times) {
  intake_.stop();
  const io::FrameQueue& queue = intake_.queue;
  return {.uri = config_.source.uri,
          .frames = {.received = queue.received(),
                     .trained = outcome.trained,
                     .dropped = queue.dropped() + outcome.predicted_only,
                     .predicted_only = outcome.predicted_only,
                     .rejected =
                         queue.rejected() + outcome.rejected + outcome.untold + feed_->pending(),
                     .untold = outcome.untold},
          .stage_ms = times.stage,
          .handoff_ms = times.handoff,
          .error = intake_.reader->error()};
}

}  // namespace millrace::app
