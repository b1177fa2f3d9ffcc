#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace millrace::io {

using Clock = std::chrono::steady_clock;

inline std::string size_text(std::int64_t width, std::int64_t height) {
  return std::to_string(width) + "x" + std::to_string(height);
}

/// A picture: [height][width][channels] bytes, rows without padding, RGB (3) or grey (1).
struct Frame {
  std::int64_t id = -1;  ///< order of arrival: 0, 1, ...; dropped frames use up a number
  Clock::time_point
      captured;  ///< when it reached this process, or fell due if a file is paced live
  std::chrono::nanoseconds pts{0};  ///< position in the stream, monotonic
  /// Changes after an outage, an undecodable picture or a restart of a looped file; not by drops.
  std::int64_t segment = 0;
  int width = 0;
  int height = 0;
  int channels = 0;
  int label = -1;  ///< class; -1: none
  std::vector<std::uint8_t> pixels;
  std::vector<float> values;  ///< [C,H,W], 0..1, instead of pixels; empty: it has pixels
  /// What the prediction is compared with, [C,H,W]; empty: none from the source.
  std::vector<float> target;

  /// Becomes a picture of the same moment as `other`.
  void date_like(const Frame& other) {
    id = other.id;
    captured = other.captured;
    pts = other.pts;
  }
  std::size_t bytes() const { return std::size_t(width) * height * channels; }
  void reshape(int wide, int high, int deep) {
    width = wide;
    height = high;
    channels = deep;
    pixels.resize(bytes());
  }
};

}  // namespace millrace::io
