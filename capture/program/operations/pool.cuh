// Pooling and its gradient, which is also upsampling. One thread per element.
#pragma once

#include "capture/program/cuda/device.cuh"

namespace millrace::gpu {

/// A side's taps that are inside the input, at `begin` + i * dilation.
struct Met {
  int begin, first, last;
  DEVICE Met(const PoolTaps& taps, int output, int size)
      : begin(output * taps.stride - taps.padding),
        first(begin < 0 ? divided_up(-begin, taps.dilation) : 0),
        last(size > begin ? divided_up(size - begin, taps.dilation) : 0) {
    if (last > taps.count) last = taps.count;
  }
  DEVICE int count() const { return last > first ? last - first : 0; }
};

/// An output and the part of its plane that its window covers.
struct PoolWindow {
  const PoolArguments& p;
  Met rows, columns;
  DEVICE PoolWindow(const PoolArguments& all, int y, int x)
      : p(all), rows(p.rows, y, p.in_height), columns(p.columns, x, p.in_width) {}

  template <class Work>
  DEVICE void each(const Work& work) const {
    for (int i = rows.first; i < rows.last; ++i) {
      const int y = rows.begin + i * p.rows.dilation;
      for (int j = columns.first; j < columns.last; ++j)
        work(y * p.in_width + columns.begin + j * p.columns.dilation);
    }
  }
  DEVICE float share() const {
    const int taps =
        p.counts_zeros ? p.rows.count * p.columns.count : rows.count() * columns.count();
    return 1 / (p.divisor > 0 ? p.divisor : float(taps));
  }
  /// The first maximum or the first NaN, and its index.
  DEVICE float largest(const float* plane, int& where) const {
    float best = 0;
    where = -1;
    each([&](int at) {
      const float v = plane[at];
      if (where >= 0 && (best != best || !(v > best || v != v))) return;
      best = v;
      where = at;
    });
    return best;
  }
};

template <bool kLargest>
KERNEL(kThreads)
pool(BY_VALUE PoolArguments p) {
  start();
  const int i = block() * kThreads + thread(), pixels = p.out_height * p.out_width;
  if (i >= p.channels * pixels) return;
  const float* const plane = p.x + (long long)(i / pixels) * p.in_height * p.in_width;
  const PoolWindow window(p, i % pixels / p.out_width, i % p.out_width);
  int where;
  float made = 0;
  if constexpr (kLargest) {
    made = window.largest(plane, where);
  } else {
    window.each([&](int at) { made += plane[at]; });
    made *= window.share();
  }
  p.to[i] = made;
}

/// The outputs along a side whose windows may cover an input: [first, last).
struct Meeting {
  int first, last;
  DEVICE Meeting(const PoolTaps& taps, int input, int outputs) {
    const int from = input + taps.padding - (taps.count - 1) * taps.dilation;
    first = from > 0 ? divided_up(from, taps.stride) : 0;
    last = (input + taps.padding) / taps.stride + 1;
    if (last > outputs) last = outputs;
  }
};
DEVICE bool meets(const PoolTaps& taps, int output, int input) {
  return (input + taps.padding - output * taps.stride) % taps.dilation == 0;
}

/// Each input gathers from its windows in their order.
template <bool kLargest>
KERNEL(kThreads)
pool_gradient(BY_VALUE PoolArguments p) {
  start();
  const int i = block() * kThreads + thread(), pixels = p.in_height * p.in_width;
  if (i >= p.channels * pixels) return;
  const int channel = i / pixels, y = i % pixels / p.in_width, x = i % p.in_width;
  const Meeting rows(p.rows, y, p.out_height), columns(p.columns, x, p.out_width);
  float sum = 0;
  for (int oy = rows.first; oy < rows.last; ++oy) {
    for (int ox = columns.first; ox < columns.last; ++ox) {
      if (!meets(p.rows, oy, y) || !meets(p.columns, ox, x)) continue;
      const PoolWindow window(p, oy, ox);
      const float dy = p.dy[(channel * p.out_height + oy) * p.out_width + ox];
      if constexpr (kLargest) {
        int where;
        window.largest(p.x + (long long)(channel)*pixels, where);
        sum += where == y * p.in_width + x ? dy : 0;
      } else {
        sum += dy * window.share();
      }
    }
  }
  p.to[i] = sum;
}

}  // namespace millrace::gpu
