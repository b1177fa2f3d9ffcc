// A run's source, and the queue its frames wait in.
#pragma once

#include <functional>
#include <memory>

#include "engine/monitor/real_time.h"
#include "engine/monitor/tally.h"
#include "io/queue/frame_queue.h"
#include "io/queue/reader.h"
#include "io/queue/resizer.h"
#include "io/source/source.h"
#include "io/source/stream_health.h"
#include "stages/model_spec.h"
#include "tools/app/config/config.h"

namespace millrace::app {

using SourceOpener = std::function<std::unique_ptr<io::Source>()>;

/// Thread-bound, except frames().
struct Intake {
  /// Opens `own`, or the config's source if that is empty. `config` outlives this. Throws
  /// io::SourceError, or ConfigError if the config does not suit the source.
  explicit Intake(const Config& config, const SourceOpener& own = {});

  stages::ImageShape shape() const;  ///< of a sample's input
  double fps() const;                ///< F; 0: unknown
  /// Frames so far, of which the pipeline has handled `fates`. Any thread.
  engine::FrameCounts frames(const engine::FateCounts& fates) const;
  /// Starts reading. If nothing is dropped, it ends after `limit` frames (0: no limit).
  void start(std::int64_t limit = 0);
  /// Stops reading and waits for the reader.
  void stop();

  const Config& config;

  std::unique_ptr<io::Source> source;  ///< until start()
  const io::SourceInfo info;
  const std::shared_ptr<const io::StreamHealth> health;
  const bool live;  ///< frames arrive at their own rate
  const io::Drop drop;
  io::FrameQueue queue;
  io::Resizer resizer;
  std::unique_ptr<io::Reader> reader;  ///< null until start()
};

}  // namespace millrace::app
