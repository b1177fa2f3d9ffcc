// Converts a picture's bytes to a sample's floats, and back; puts pictures together.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "io/source/frame.h"

namespace millrace::io {

/// Interesting errors are a few grey levels, so they are shown magnified by this.
constexpr float kErrorGain = 4.0f;

/// Writes the magnified errors of the prediction `made` to `error`, whose storage is reused.
inline void shown_error(std::span<const float> made, std::span<const float> target,
                        std::vector<float>& error) {
  error.resize(target.size());
  for (std::size_t i = 0; i < error.size(); ++i)
    error[i] = kErrorGain * std::abs(target[i] - made[i]);
}
inline std::vector<float> shown_error(std::span<const float> made, std::span<const float> target) {
  std::vector<float> error;
  shown_error(made, target, error);
  return error;
}

/// A float in [0, 1] as a byte; others are clamped, NaN is 0.
inline std::uint8_t byte_of(float value) {
  return value > 0 ? std::uint8_t(std::min(value, 1.0f) * 255.0f + 0.5f) : 0;
}

/// `frame` as float32 [channels][height][width], frame.bytes() floats, each the nearest to v / 255.
void to_planar(const Frame& frame, float* out);

/// Converts float32 [channels][height][width] in [0, 1]; other values are clamped.
Frame from_planar(const float* planar, int channels, int height, int width);
/// Reuses the storage of `out`.
void from_planar(const float* planar, int channels, int height, int width, Frame& out);

/// Writes `left` and `right`, of the same height and channels, side by side into `out`, with
/// `left`'s id and times. Reuses out's storage.
void side_by_side(const Frame& left, const Frame& right, Frame& out);

/// Draws a rectangle's outline, clipped to the picture: orange, or white on grey.
inline void outline(Frame& frame, int left, int top, int width, int height) {
  constexpr std::uint8_t kOrange[] = {230, 120, 0};
  const auto dot = [&](int x, int y) {
    if (x < 0 || y < 0 || x >= frame.width || y >= frame.height) return;
    std::uint8_t* const at = &frame.pixels[std::size_t(y * frame.width + x) * frame.channels];
    for (int c = 0; c < frame.channels; ++c) at[c] = frame.channels == 3 ? kOrange[c] : 255;
  };
  for (int x = left - 1; x <= left + width; ++x) {
    dot(x, top - 1);
    dot(x, top + height);
  }
  for (int y = top - 1; y <= top + height; ++y) {
    dot(left - 1, y);
    dot(left + width, y);
  }
}

}  // namespace millrace::io
