#include "io/planar.h"

#include <algorithm>  // clamp
#include <array>      // table of values
#include <cmath>      // lround

namespace millrace::io {
namespace {

constexpr std::array<float, 256> kUnit = [] {
  std::array<float, 256> table{};
  for (int v = 0; v < 256; ++v) table[v] = float(v) / 255.0f;
  return table;
}();

}  // namespace

void to_planar(const Frame& frame, float* out) {
  const std::size_t plane = std::size_t(frame.width) * frame.height;
  const std::uint8_t* in = frame.pixels.data();
  if (frame.channels == 3) {
    float *red = out, *green = out + plane, *blue = out + 2 * plane;
    for (std::size_t i = 0; i < plane; ++i, in += 3) {
      red[i] = kUnit[in[0]];
      green[i] = kUnit[in[1]];
      blue[i] = kUnit[in[2]];
    }
  } else {
    for (std::size_t i = 0; i < plane; ++i) out[i] = kUnit[in[i]];
  }
}

void from_planar(const float* planar, int channels, int height, int width, Frame& out) {
  out.channels = channels;
  out.height = height;
  out.width = width;
  out.pixels.resize(out.bytes());
  const std::size_t plane = std::size_t(width) * height;
  for (std::size_t i = 0; i < plane; ++i) {
    for (int c = 0; c < channels; ++c) {
      const float value = std::clamp(planar[c * plane + i], 0.0f, 1.0f);  // also turns nan into 0
      out.pixels[i * channels + c] = std::uint8_t(std::lround(value * 255.0f));
    }
  }
}

Frame from_planar(const float* planar, int channels, int height, int width) {
  Frame frame;
  from_planar(planar, channels, height, width, frame);
  return frame;
}

}  // namespace millrace::io
