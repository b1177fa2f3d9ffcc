// What a block's threads do together, and groups of floats.
#pragma once

#include "capture/program/cuda/device.cuh"

namespace millrace::gpu {

/// combine(a, b) of the threads' numbers in pairs, always in one order; all threads get it. Takes
/// kThreads doubles of shared memory.
template <int kThreads, class Combine>
DEVICE double combined_in_block(double own, const Combine& combine) {
  auto* const all = reinterpret_cast<double*>(shared_memory());
  meet();  // who still reads what was combined before
  all[thread()] = own;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    meet();
    if (thread() < half) all[thread()] = combine(all[thread()], all[thread() + half]);
  }
  meet();
  return all[0];
}
template <int kThreads>
DEVICE double sum_of_block(double own) {
  return combined_in_block<kThreads>(own, [](double a, double b) { return a + b; });
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
