// Functions of each element, copies between strides, sums of parts, and the mean squared error.
#pragma once

#include "capture/program/cuda/device.cuh"

namespace millrace::gpu {

template <Elementwise kFunction>
KERNEL(kThreads)
elementwise(BY_VALUE ElementwiseArguments arguments) {
  const int i = block() * kThreads + thread();
  if (i >= arguments.count) return;
  const float a = arguments.a[i];
  float made = a;
  if constexpr (kFunction == Elementwise::relu) made = activated(a, Activation::relu);
  if constexpr (kFunction == Elementwise::sigmoid) made = activated(a, Activation::sigmoid);
  if constexpr (kFunction == Elementwise::relu_gradient) made = arguments.b[i] <= 0 ? 0 : a;
  if constexpr (kFunction == Elementwise::sigmoid_gradient)
    made = a * arguments.b[i] * (1 - arguments.b[i]);
  if constexpr (kFunction == Elementwise::add) made = a + arguments.b[i];
  arguments.out[i] = made;
}

KERNEL(kThreads) copy_strided(BY_VALUE CopyArguments c) {
  int i = block() * kThreads + thread();
  if (i >= c.sizes[0] * c.sizes[1] * c.sizes[2] * c.sizes[3]) return;
  int from = 0, to = 0;
  for (int d = 3; d >= 0; --d) {
    const int along = i % c.sizes[d];
    i /= c.sizes[d];
    from += along * c.from_strides[d];
    to += along * c.to_strides[d];
  }
  c.to[to] = c.from[from];
}

/// A thread a sum.
KERNEL(kThreads) add_up_parts(BY_VALUE PartsArguments arguments) {
  start();
  int own = block(), k = 0;
  while (own >= arguments.all[k].blocks) own -= arguments.all[k++].blocks;
  const Parts& p = arguments.all[k];
  const int i = own * kThreads + thread();
  if (i >= p.count) return;
  float sum = 0;
  for (int slice = 0; slice < p.slices; ++slice) sum += p.parts[(long long)(slice)*p.count + i];
  p.sum[i] = p.accumulate ? p.sum[i] + sum : sum;
}

/// The mean of squared differences, by one block: each thread adds every kSumThreads-th,
/// then the threads' sums are added in pairs.
KERNEL(kSumThreads) squared_error(BY_VALUE SquaredErrorArguments a) {
  float sum = 0;
  for (int i = thread(); i < a.count; i += kSumThreads) {
    const float difference = a.prediction[i] - a.target[i];
    sum = fmaf(difference, difference, sum);
  }
  sum = sum_of_block<kSumThreads>(sum);
  if (thread() == 0) *a.out = sum / a.count;
}

KERNEL(kThreads) squared_error_gradient(BY_VALUE SquaredErrorArguments a) {
  const int i = block() * kThreads + thread();
  if (i >= a.count) return;
  const float made = a.prediction[i];
  const float gradient = 2 * (made - a.target[i]) / a.count * *a.scale;
  a.out[i] = a.through_sigmoid ? gradient * made * (1 - made) : gradient;
}

}  // namespace millrace::gpu
