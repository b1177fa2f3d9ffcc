// Max pooling and its gradient. One thread per element.
#pragma once

#include "capture/program/cuda/device.cuh"

namespace millrace::gpu {

#define FORMULA DEVICE
#include "capture/program/operations/pool-inl.h"
#undef FORMULA

/// The window's first maximum or first NaN, and its index in the plane.
DEVICE float largest_of(const PoolWindow& window, const float* plane, int& where) {
  float best = 0;
  where = -1;
  window.each([&](int at) {
    const float v = plane[at];
    if (where >= 0 && (best != best || !(v > best || v != v))) return;
    best = v;
    where = at;
  });
  return best;
}

KERNEL(kThreads) pool(BY_VALUE PoolArguments p) {
  start();
  const int i = block() * kThreads + thread(), pixels = p.output.pixels();
  if (i >= p.output.channels * pixels) return;
  const float* const plane = p.x + (long long)(i / pixels) * p.input.height * p.input.width;
  const PoolWindow window(p, i % pixels / p.output.width, i % p.output.width);
  int where;
  p.to[i] = largest_of(window, plane, where);
}

/// The outputs along a side whose windows may cover an input: [first, last).
struct Meeting {
  int first, last;
  DEVICE Meeting(const Taps& taps, int input, int outputs) {
    const int from = input + taps.padding - (taps.count - 1) * taps.dilation;
    first = from > 0 ? divided_up(from, taps.stride) : 0;
    last = (input + taps.padding) / taps.stride + 1;
    if (last > outputs) last = outputs;
  }
};
DEVICE bool meets(const Taps& taps, int output, int input) {
  return (input + taps.padding - output * taps.stride) % taps.dilation == 0;
}

/// Each input gathers from its windows in their order.
KERNEL(kThreads) pool_gradient(BY_VALUE PoolArguments p) {
  start();
  const int i = block() * kThreads + thread(), pixels = p.input.pixels();
  if (i >= p.input.channels * pixels) return;
  const int channel = i / pixels, y = i % pixels / p.input.width, x = i % p.input.width;
  const Meeting rows(p.window.rows, y, p.output.height),
      columns(p.window.columns, x, p.output.width);
  float sum = 0;
  for (int oy = rows.first; oy < rows.last; ++oy) {
    for (int ox = columns.first; ox < columns.last; ++ox) {
      if (!meets(p.window.rows, oy, y) || !meets(p.window.columns, ox, x)) continue;
      const PoolWindow window(p, oy, ox);
      const float dy = p.dy[(channel * p.output.height + oy) * p.output.width + ox];
      int where;
      largest_of(window, p.x + (long long)(channel)*pixels, where);
      sum += where == y * p.input.width + x ? dy : 0;
    }
  }
  p.to[i] = sum;
}

}  // namespace millrace::gpu
