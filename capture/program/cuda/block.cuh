#pragma once

#include "capture/program/cuda/device.cuh"

namespace millrace::gpu {

/// combine(a, b) over all threads' numbers in a fixed order, returned to all. Takes kThreads
/// doubles of shared memory. Each step combines eight numbers: steps take longer than additions.
template <int kThreads, class Combine>
DEVICE double combined_in_block(double own, const Combine& combine) {
  constexpr int kAtOnce = 8;
  auto* const all = reinterpret_cast<double*>(shared_memory());
  meet();  // others may still read the last result
  all[thread()] = own;
  meet();
  int left = kThreads;
  for (; left > kAtOnce; left /= kAtOnce) {
    const int next = left / kAtOnce;
    if (thread() < next) {
#pragma unroll
      for (int k = 1; k < kAtOnce; ++k) own = combine(own, all[thread() + k * next]);
      all[thread()] = own;
    }
    meet();
  }
  double made = all[0];
  for (int k = 1; k < left; ++k) made = combine(made, all[k]);
  return made;
}
template <int kThreads>
DEVICE double sum_of_block(double own) {
  return combined_in_block<kThreads>(own, [](double a, double b) { return a + b; });
}

struct Planes {
  const float* first;  ///< [channels][height][width]
  int channels, height, width;
};

/// Copies a tile of kChannels planes, from pixel (y, x), to rows of kRow floats of which kColumns
/// are filled, with zeros outside the image. kApart: 4 if rows, like the tile's, are aligned in
/// fours. A thread copies the same place of several channels, so that it computes few addresses.
template <int kThreads, int kChannels, int kRows, int kColumns, int kRow, int kPlane, int kApart>
class TileFetch {
  static constexpr int kAcross = kColumns / kApart, kPlaces = kRows * kAcross;
  static constexpr bool kOnePlace = kPlaces <= kThreads;
  static constexpr int kAtOnce = kOnePlace ? kThreads / kPlaces : 1;  ///< channels

 public:
  DEVICE TileFetch(const Planes& from, int y, int x)
      : from(from), y(y), x(x), first(source(thread() % kPlaces)) {}

  /// Starts it from `channel` on.
  DEVICE void operator()(float* to, int channel) const {
    const int own = kOnePlace ? thread() / kPlaces : 0;
    if (own >= kAtOnce) return;
    const int plane = from.height * from.width;
#pragma unroll 1
    for (int place = kOnePlace ? thread() % kPlaces : thread(); place < kPlaces;
         place += kThreads) {
      const Source at = kOnePlace ? first : source(place);
      const float* const pixel = from.first + (long long)(channel + own) * plane + at.offset;
      float* const there = to + own * kPlane + place / kAcross * kRow + place % kAcross * kApart;
      const int channels = at.inside ? from.channels - channel - own : 0;
#pragma unroll 2
      for (int c = 0; c < kChannels - own; c += kAtOnce) {
        const bool inside = c < channels;
        if constexpr (kApart == 4) {
          copy_async_4(there + c * kPlane, pixel + c * plane, inside);
        } else {
          copy_async(there + c * kPlane, pixel + c * plane, inside);
        }
      }
      if (kOnePlace) return;
    }
  }

 private:
  struct Source {
    int offset;  ///< in a plane
    bool inside;
  };
  DEVICE Source source(int place) const {
    const int row = y + place / kAcross, column = x + place % kAcross * kApart;
    return {row * from.width + column,
            unsigned(column) < unsigned(from.width) && unsigned(row) < unsigned(from.height)};
  }
  const Planes from;
  const int y, x;
  const Source first;  ///< of a thread that has one place
};

/// One float, or four at an aligned address.
template <int kFloats>
DEVICE void load_some(float* to, const float* from) {
  if constexpr (kFloats == 1) {
    *to = *from;
  } else {
    load<kFloats>(to, from);
  }
}
template <int kFloats>
DEVICE void store(float* to, const float* from) {
  if constexpr (kFloats == 1) {
    *to = *from;
  } else {
    *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
  }
}

}  // namespace millrace::gpu
