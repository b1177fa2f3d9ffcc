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

/// Starts copying a tile of kChannels planes, from pixel (y, x) of `channel`, to rows of kRow
/// floats, with zeros outside the image. kApart: 4 if rows, like the tile's, are aligned in fours.
template <int kThreads, int kChannels, int kRows, int kRow, int kPlane, int kApart>
DEVICE void fetch_tile(float* to, const Planes& from, int channel, int y, int x) {
  // Threads cover kStep rows at a time: each keeps its column and nothing is divided.
  constexpr int kAcross = kRow / kApart, kOnce = kAcross < kThreads ? kAcross : kThreads;
  constexpr int kStep = kThreads / kOnce;
  if (thread() >= kStep * kOnce) return;
#pragma unroll 1
  for (int column = thread() % kOnce; column < kAcross; column += kOnce) {
    const int from_x = x + column * kApart;
    const bool in_row = unsigned(from_x) < unsigned(from.width);
    int row = thread() / kOnce % kRows, c = thread() / kOnce / kRows;
#pragma unroll 2
    while (c < kChannels) {
      const int from_y = y + row;
      const bool there =
          in_row && channel + c < from.channels && unsigned(from_y) < unsigned(from.height);
      const long long source =
          (long long)((channel + c) * from.height + from_y) * from.width + from_x;
      float* const place = to + c * kPlane + row * kRow + column * kApart;
      if constexpr (kApart == 4) {
        copy_async_4(place, from.first + source, there);
      } else {
        copy_async(place, from.first + source, there);
      }
      row += kStep % kRows;
      c += kStep / kRows + (row >= kRows ? 1 : 0);
      if (row >= kRows) row -= kRows;
    }
  }
}

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
