#include "io/queue/planar.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace millrace::io {
namespace {

constexpr std::array<float, 256> kUnit = [] {
  std::array<float, 256> table{};
  for (int v = 0; v < 256; ++v) table[v] = float(v) / 255.0f;
  return table;
}();

#if defined(__x86_64__) && defined(__GNUC__)

constexpr std::size_t kBlock = 64;

// Vector division gives the same floats as the table and is no slower, since memory bandwidth is
// the limit. Converts whole blocks of pixels and returns how many pixels those are.

[[gnu::target("avx2")]] std::size_t planes_in_blocks(const std::uint8_t* in, std::size_t plane,
                                                     float* out) {
  std::size_t i = 0;
  for (; i + kBlock <= plane; i += kBlock, in += 3 * kBlock) {
    std::uint8_t channel[3][kBlock];
    for (std::size_t k = 0; k < kBlock; ++k) {
      channel[0][k] = in[3 * k];
      channel[1][k] = in[3 * k + 1];
      channel[2][k] = in[3 * k + 2];
    }
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::size_t k = 0; k < kBlock; ++k)
        out[c * plane + i + k] = float(channel[c][k]) / 255.0f;
    }
  }
  return i;
}

[[gnu::target("avx2")]] std::size_t plane_in_blocks(const std::uint8_t* in, std::size_t plane,
                                                    float* out) {
  const std::size_t whole = plane / kBlock * kBlock;
  for (std::size_t i = 0; i < whole; ++i) out[i] = float(in[i]) / 255.0f;
  return whole;
}

bool has_vectors() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}

#else

std::size_t planes_in_blocks(const std::uint8_t*, std::size_t, float*) {
  return 0;
}
std::size_t plane_in_blocks(const std::uint8_t*, std::size_t, float*) {
  return 0;
}
bool has_vectors() {
  return false;
}

#endif

}  // namespace

void to_planar(const Frame& frame, float* out) {
  const std::size_t plane = std::size_t(frame.width) * frame.height;
  const std::uint8_t* const in = frame.pixels.data();
  if (frame.channels == 3) {
    for (std::size_t i = has_vectors() ? planes_in_blocks(in, plane, out) : 0; i < plane; ++i) {
      for (std::size_t c = 0; c < 3; ++c) out[c * plane + i] = kUnit[in[3 * i + c]];
    }
  } else {
    for (std::size_t i = has_vectors() ? plane_in_blocks(in, plane, out) : 0; i < plane; ++i)
      out[i] = kUnit[in[i]];
  }
}

void from_planar(const float* planar, int channels, int height, int width, Frame& out) {
  out.reshape(width, height, channels);
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
