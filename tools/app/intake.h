// A run's source, and the queue its frames wait in.
#pragma once

#include <atomic>
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
#include "tools/app/run.h"

namespace millrace::app {

using SourceOpener = std::function<std::unique_ptr<io::Source>()>;

/// Thread-bound, except frames().
struct Intake {
  /// Opens `own`, or the config's source if that is empty, or nothing if the caller puts frames
  /// into the queue. `config` outlives this. Throws io::SourceError, or ConfigError if the config
  /// does not suit the source.
  explicit Intake(const Config& config, const SourceOpener& own = {},
                  std::shared_ptr<const GivenStream> given = nullptr);

  stages::ImageShape shape() const;  ///< of a sample's input
  double fps() const;                ///< F; 0: unknown
  /// Frames so far, of which the pipeline has handled `fates`. Any thread.
  engine::FrameCounts frames(const engine::FateCounts& fates) const;
  /// Starts reading. If nothing is dropped, it ends after `limit` frames (0: no limit).
  void start(std::int64_t limit = 0);
  /// No further frame is read.
  void end();
  /// Stops reading and waits for the reader.
  void stop();
  double seen_fps() const;    ///< by the frames so far; 0: unknown
  std::string error() const;  ///< why the stream broke off; "": it did not. After stop()
  bool hung() const;          ///< the source hung and was left behind. After stop()

  const Config& config;

  const std::shared_ptr<const GivenStream> given;  ///< null: frames come from a source
  std::unique_ptr<io::Source> source;              ///< until start()
  const io::SourceInfo info;
  const std::shared_ptr<const io::StreamHealth> health;
  const bool live;  ///< frames arrive at their own rate
  const io::Drop drop;
  io::FrameQueue queue;
  io::Resizer resizer;
  std::atomic<double> given_fps{0.0};  ///< written by who puts frames into the queue

 private:
  std::unique_ptr<io::Reader> reader_;  ///< null until start()
};

}  // namespace millrace::app
