// The stream, up to the queue.
#pragma once

#include <memory>

#include "io/queue/frame_queue.h"
#include "io/queue/reader.h"
#include "io/queue/resizer.h"
#include "io/source/source.h"
#include "io/source/stream_health.h"
#include "stages/model_spec.h"
#include "tools/app/feeds/run_source.h"

namespace millrace::app {

/// Opens the source. Thread-bound.
struct Intake {
  /// Opens `own`, or the config's source if that is empty. `config` outlives it. Throws
  /// io::SourceError; ConfigError for what does not fit the source.
  explicit Intake(const Config& config, const SourceOpener& own = {});

  stages::ImageShape shape() const;  ///< of a sample's input
  double fps() const;                ///< F; 0: unknown
  /// Starts to read; stops after `limit` frames if nothing is dropped (0: at the end).
  void start(std::int64_t limit = 0);
  /// Stops reading and waits for the reader.
  void stop();

  const Config& config;

  std::unique_ptr<io::Source> source;  ///< until start()
  const io::SourceInfo info;
  const std::shared_ptr<const io::StreamHealth> health;
  const bool live;  ///< frames come at their own rate
  const io::Drop drop;
  io::FrameQueue queue;
  io::Resizer resizer;
  std::unique_ptr<io::Reader> reader;  ///< null until start()
};

}  // namespace millrace::app
