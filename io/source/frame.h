// One picture on its way from a source to the pipeline.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace millrace::io {

using Clock = std::chrono::steady_clock;

/// "64x48"
inline std::string size_text(std::int64_t width, std::int64_t height) {
  return std::to_string(width) + "x" + std::to_string(height);
}

/// A picture as bytes: [height][width][channels], rows without padding, RGB (3) or grey (1).
struct Frame {
  std::int64_t id = -1;  ///< order of arrival: 0, 1, ...; dropped frames use up their number
  Clock::time_point
      captured;  ///< when it reached this process, or fell due if a file is paced live
  std::chrono::nanoseconds pts{0};  ///< position in the stream, monotonic
  /// Frames of one segment follow one another: between them there was no outage, no picture that
  /// could not be decoded and no restart of a looped file. Dropped frames show in `id`.
  std::int64_t segment = 0;
  int width = 0;
  int height = 0;
  int channels = 0;
  int label = -1;  ///< class; -1: none
  std::vector<std::uint8_t> pixels;
  std::vector<float> values;  ///< instead of pixels: [C,H,W], 0..1; empty: it has pixels
  /// What its prediction is compared with, [C,H,W]; empty: the source gives none.
  std::vector<float> target;

  std::size_t bytes() const { return std::size_t(width) * height * channels; }
  /// Makes room for pixels of this size; storage is reused.
  void reshape(int wide, int high, int deep) {
    width = wide;
    height = high;
    channels = deep;
    pixels.resize(bytes());
  }
};

}  // namespace millrace::io
