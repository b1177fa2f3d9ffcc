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
  Layout size;
};

/// fetch_tile(), kApart floats at a time.
template <int kThreads, int kChannels, int kRows, int kColumns, int kRow, int kPlane, int kApart>
DEVICE void fetch_tile_by(float* to, const Planes& from, int channel, int y, int x) {
  constexpr int kAcross = kColumns / kApart, kPlaces = kRows * kAcross;
  constexpr int kAtOnce = kPlaces <= kThreads ? kThreads / kPlaces : 1;  // channels
  const int own = kPlaces <= kThreads ? thread() / kPlaces : 0, plane = from.size.pixels();
  if (own >= kAtOnce) return;
#pragma unroll 1
  for (int place = kPlaces <= kThreads ? thread() % kPlaces : thread(); place < kPlaces;
       place += kThreads) {
    const int row = place / kAcross, column = place % kAcross * kApart;
    const bool inside = unsigned(x + column) < unsigned(from.size.width) &&
                        unsigned(y + row) < unsigned(from.size.height);
    const int channels = inside ? from.size.channels - channel - own : 0;
    const float* const pixel =
        from.first + (long long)(channel + own) * plane + (y + row) * from.size.width + x + column;
    float* const there = to + own * kPlane + row * kRow + column;
#pragma unroll 2
    for (int c = 0; c < kChannels - own; c += kAtOnce) {
      if constexpr (kApart == 4) {
        copy_async_4(there + c * kPlane, pixel + c * plane, c < channels);
      } else {
        copy_async(there + c * kPlane, pixel + c * plane, c < channels);
      }
    }
    if (kPlaces <= kThreads) return;  // so that there is no loop
  }
}
/// Starts copying a tile of kChannels planes, from pixel (y, x) of `channel`, to rows of kRow
/// floats of which kColumns are filled, with zeros outside the image. `fours`: its rows, like the
/// tile's, are aligned in fours. A thread copies one pixel of several channels: few addresses.
template <int kThreads, int kChannels, int kRows, int kColumns, int kRow, int kPlane>
DEVICE void fetch_tile(float* to, const Planes& from, int channel, int y, int x, bool fours) {
  if (fours) {
    fetch_tile_by<kThreads, kChannels, kRows, kColumns, kRow, kPlane, 4>(to, from, channel, y, x);
  } else {
    fetch_tile_by<kThreads, kChannels, kRows, kColumns, kRow, kPlane, 1>(to, from, channel, y, x);
  }
}

/// One float, or four at an aligned address.
template <int kFloats>
DEVICE void store(float* to, const float* from) {
  if constexpr (kFloats == 1) {
    *to = *from;
  } else {
    *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
  }
}

}  // namespace millrace::gpu
