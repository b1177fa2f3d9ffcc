#pragma once

#include "capture/program/cuda/block.cuh"

namespace millrace::gpu {

/// The mean of squared differences, or a block's part of the sum.
KERNEL(kSumThreads) squared_error(BY_VALUE SquaredErrorArguments a) {
  start();
  float part = 0;
  constexpr int kAtOnce = 8;  // so that the thread waits once for its loads
  const int step = a.blocks * kSumThreads;
#pragma unroll 1
  for (int first = block() * kSumThreads + thread(); first < a.count; first += kAtOnce * step) {
    float differences[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int i = first + k * step;
      differences[k] = i < a.count ? a.prediction[i] - a.target[i] : 0;
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) part = fmaf(differences[k], differences[k], part);
  }
  const double sum = sum_of_block<kSumThreads>(part);
  if (thread() != 0) return;
  if (a.blocks == 1) *a.out = float(sum / a.count);
  if (a.blocks > 1) a.parts[block()] = sum;
}
KERNEL(kSumThreads) squared_error_of_parts(BY_VALUE SquaredErrorArguments a) {
  start();
  const double sum = sum_of_block<kSumThreads>(thread() < a.blocks ? a.parts[thread()] : 0);
  if (thread() == 0) *a.out = float(sum / a.count);
}

KERNEL(kThreads) squared_error_gradient(BY_VALUE SquaredErrorArguments a) {
  start();
  const int i = block() * kThreads + thread();
  if (i >= a.count) return;
  const float made = a.prediction[i];
  const float gradient = 2 * (made - a.target[i]) / a.count * *a.scale;
  a.out[i] = a.through_sigmoid ? gradient * made * (1 - made) : gradient;
}

}  // namespace millrace::gpu
