// Copies between layouts.
#include <algorithm>

#include "capture/program/kernels/kernels.h"

namespace millrace::kernels {
namespace {

/// Channel count known at compile time where it is a picture's, so that the loop unrolls.
template <int kChannels>
void interleave(const float* planes, float* destination, const Layout& to) {
  const std::size_t plane = std::size_t(to.height) * to.width;
  const std::size_t channels = kChannels ? kChannels : to.channels;
  for (std::size_t i = 0; i < plane; ++i) {
    for (std::size_t c = 0; c < channels; ++c)
      destination[i * channels + c] = planes[c * plane + i];
  }
}

template <int kChannels>
void separate(const float* source, const Layout& from, float* planes) {
  const std::size_t plane = std::size_t(from.height) * from.width;
  const std::size_t channels = kChannels ? kChannels : from.channels;
  for (std::size_t i = 0; i < plane; ++i) {
    for (std::size_t c = 0; c < channels; ++c) planes[c * plane + i] = source[i * channels + c];
  }
}

}  // namespace

void from_planes(const float* planes, float* destination, const Layout& to) {
  to.channels == 3 ? interleave<3>(planes, destination, to)
                   : interleave<0>(planes, destination, to);
}

void to_planes(const float* source, const Layout& from, float* planes) {
  from.channels == 3 ? separate<3>(source, from, planes) : separate<0>(source, from, planes);
}

}  // namespace millrace::kernels
