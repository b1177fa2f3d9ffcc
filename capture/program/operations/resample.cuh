#pragma once

#include "capture/program/cuda/device.cuh"

namespace millrace::gpu {

#define FORMULA DEVICE
#include "capture/program/operations/resample-inl.h"
#undef FORMULA

/// One thread per element.
KERNEL(kThreads) resample(BY_VALUE ResampleArguments r) {
  start();
  const int i = block() * kThreads + thread(), pixels = r.output.pixels();
  if (i >= r.output.channels * pixels) return;
  const float* const plane = r.x + (long long)(i / pixels) * r.input.pixels();
  const int pixel = i % pixels;
  r.to[i] = resampled(r, pixel / r.output.width, pixel % r.output.width,
                      [&](int at) { return plane[at]; });
}

}  // namespace millrace::gpu
