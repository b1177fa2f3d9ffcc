// The source of a pipeline beside rank 0's.
#pragma once

#include <memory>

#include "io/queue/frame_queue.h"
#include "io/queue/reader.h"
#include "io/queue/resizer.h"
#include "io/source/source.h"
#include "tools/app/feeds/frame_feed.h"
#include "tools/app/intake.h"
#include "tools/app/ranks/rank_letters.h"

namespace millrace::app {

/// Opened, read and counted where the first rank of its pipeline is. Thread-bound.
class CopySource {
 public:
  /// Of the `copy`-th pipeline, to be samples of `sample`. Throws ConfigError, io::SourceError.
  CopySource(const Config& config, int copy, const stages::ImageShape& sample);

  /// What `trainer`, which outlives this, takes.
  FrameFeed& feed(engine::Trainer& trainer);
  void start() { intake_.start(); }
  /// After the run, which trained so many. Waits for the reader.
  SourceReport finish(const engine::Outcome& outcome, const engine::Reading& times);

 private:
  const Config config_;
  Intake intake_;
  std::unique_ptr<FrameFeed> feed_;
};

}  // namespace millrace::app
