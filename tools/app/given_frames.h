// Frames of a config's source, for callers that pass them to a GivenRun.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "tools/app/intake.h"

namespace millrace::app {

/// A frame as a sample.
struct GivenFrame {
  std::array<std::int64_t, 3> shape{};  ///< channels, height, width
  std::vector<float> input;
  int label = -1;  ///< class from the source or task.labels; -1: none
};

/// Reads [source] and task.labels. Thread-bound; the source is read on a thread of its own.
class GivenFrames {
 public:
  /// Opens the source. Throws ConfigError, io::SourceError.
  explicit GivenFrames(const Config& config);
  /// The next frame, if it comes within `patience`. Throws io::SourceError if the stream broke.
  std::optional<GivenFrame> next(std::chrono::milliseconds patience);
  /// Whether the stream has ended.
  bool over() const { return over_; }

 private:
  const Config config_;
  Intake intake_;
  bool over_ = false;
};

}  // namespace millrace::app
