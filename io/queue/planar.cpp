#include "io/queue/planar.h"

#include <stdexcept>

namespace millrace::io {
namespace {

#if defined(__x86_64__) && defined(__GNUC__)

constexpr std::size_t kBlock = 64;

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

/// Converts whole blocks of RGB pixels with vector instructions; returns how many pixels.
std::size_t convert_blocks(const std::uint8_t* in, std::size_t plane, float* out) {
  return __builtin_cpu_supports("avx2") ? planes_in_blocks(in, plane, out) : 0;
}

#else

std::size_t convert_blocks(const std::uint8_t*, std::size_t, float*) {
  return 0;
}

#endif

}  // namespace

void to_planar(const Frame& frame, float* out) {
  const std::size_t plane = std::size_t(frame.width) * frame.height, channels = frame.channels;
  const std::uint8_t* const in = frame.pixels.data();
  const std::size_t done = channels == 3 ? convert_blocks(in, plane, out) : 0;
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t i = done; i < plane; ++i)
      out[c * plane + i] = float(in[channels * i + c]) / 255.0f;
  }
}

void from_planar(const float* planar, int channels, int height, int width, Frame& out) {
  out.reshape(width, height, channels);
  const std::size_t plane = std::size_t(width) * height;
  for (std::size_t i = 0; i < plane; ++i) {
    for (int c = 0; c < channels; ++c)
      out.pixels[i * channels + c] = byte_of(planar[c * plane + i]);
  }
}

Frame from_planar(const float* planar, int channels, int height, int width) {
  Frame frame;
  from_planar(planar, channels, height, width, frame);
  return frame;
}

void side_by_side(const Frame& left, const Frame& right, Frame& out) {
  if (left.height != right.height || left.channels != right.channels)
    throw std::invalid_argument("pictures side by side must have one height and one format");
  out.date_like(left);
  out.reshape(left.width + right.width, left.height, left.channels);
  auto to = out.pixels.begin();
  for (int y = 0; y < out.height; ++y) {
    for (const Frame* const from : {&left, &right}) {
      const std::size_t row = std::size_t(from->width) * from->channels;
      to = std::copy_n(from->pixels.begin() + y * row, row, to);
    }
  }
}

}  // namespace millrace::io
