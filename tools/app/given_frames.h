// Frames of a config's source, for a caller that gives them to a GivenRun itself.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <vector>

#include "io/queue/frame_queue.h"
#include "io/queue/reader.h"
#include "io/queue/resizer.h"
#include "tools/app/config/config.h"

namespace millrace::app {

/// A frame as a sample.
struct GivenFrame {
  std::array<std::int64_t, 3> shape{};  ///< channels, height, width
  std::vector<float> input;
  int label = -1;  ///< its class, as the source or task.labels tells; -1: none
};

/// [source] and task.labels. Used by one thread; the source is read on another.
class GivenFrames {
 public:
  /// Opens the source. Throws ConfigError, io::SourceError.
  explicit GivenFrames(const Config& config);
  /// The next frame, if it comes within `patience`. Throws io::SourceError where the stream broke.
  std::optional<GivenFrame> next(std::chrono::milliseconds patience);
  /// None comes any more.
  bool over() const { return over_; }

 private:
  GivenFrames(const Config& config, std::unique_ptr<io::Source> source);

  io::Resizer resizer_;
  io::FrameQueue queue_;
  io::Reader reader_;  // after its queue
  bool over_ = false;
};

}  // namespace millrace::app
