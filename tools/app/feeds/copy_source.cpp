#include "tools/app/feeds/copy_source.h"

#include <utility>

#include "tools/app/feeds/next_frame_feed.h"
#include "tools/app/feeds/run_source.h"

namespace millrace::app {
namespace {

Config with_uri(Config config, int copy) {
  config.source.uri = config.source.uris[std::size_t(copy)];
  return config;
}

io::FrameQueue make_queue(const Config& config, const io::SourceInfo& info) {
  const io::Drop drop = drop_policy(config, paced_live(config, info) || info.live);
  return io::FrameQueue(queue_capacity(config, drop), drop);
}

}  // namespace

CopySource::CopySource(const Config& config, int copy, const stages::ImageShape& sample)
    : config_(with_uri(config, copy)),
      source_(open_source(config_, {})),
      info_(source_->info()),
      queue_(make_queue(config_, info_)),
      resizer_(resizer_options(config_, info_)) {
  if (resizer_.width() == sample.width && resizer_.height() == sample.height) return;
  throw config.error("source.uris", "frames of " + io::redacted(config_.source.uri) + " are " +
                                        std::to_string(resizer_.width()) + "x" +
                                        std::to_string(resizer_.height()) +
                                        ", the first source's " + std::to_string(sample.width) +
                                        "x" + std::to_string(sample.height) +
                                        ": set source.width and source.height");
}

FrameFeed& CopySource::feed(engine::Trainer& trainer) {
  feed_ = frame_feed(config_, queue_, resizer_, trainer.late_targets(), trainer.schedule().slots());
  return *feed_;
}

void CopySource::start() {
  reader_ =
      std::make_unique<io::Reader>(std::move(source_), queue_, reader_options(config_, info_));
}

SourceReport CopySource::finish(const engine::Outcome& outcome, const engine::Reading& times) {
  queue_.stop();
  reader_->stop();
  reader_->join();
  return {.uri = config_.source.uri,
          .frames = {.received = queue_.received(),
                     .trained = outcome.trained,
                     .dropped = queue_.dropped() + outcome.predicted_only,
                     .predicted_only = outcome.predicted_only,
                     .rejected =
                         queue_.rejected() + outcome.rejected + outcome.untold + feed_->pending(),
                     .untold = outcome.untold},
          .stage_ms = times.stage,
          .handoff_ms = times.handoff,
          .error = reader_->error()};
}

}  // namespace millrace::app
