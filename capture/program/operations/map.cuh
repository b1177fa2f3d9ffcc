// Element-wise functions with broadcast operands, and copies.
#pragma once

#include "capture/program/cuda/block.cuh"

namespace millrace::gpu {

DEVICE float where(bool condition, float yes, float no) {
  return condition ? yes : no;
}
DEVICE float minus_times(float a, float b, float c) {
  return fmaf(-a, b, c);
}
DEVICE float sigmoid_of(float x) {
  return activated(x, Activation::kSigmoid);
}
DEVICE float tanh_of(float x) {
  return tanhf(x);
}
DEVICE float erf_of(float x) {
  return erff(x);
}
DEVICE float exp_below(float x) {
  return expf(x);
}
DEVICE float log1p_of(float x) {
  return log1pf(x);
}
DEVICE float expm1_below(float x) {
  return expm1f(x);
}

#define FORMULA DEVICE
#include "capture/program/kernels/functions-inl.h"

/// `kFloats` elements of an operand, either consecutive from `offset` or all the same.
template <int kFloats>
DEVICE void read(float* to, const Spread& from, int offset, int stride) {
  if (kFloats == 4 && from.at && stride == 1) return load<4>(to, from.at + offset);
  const float one = from.at ? from.at[offset] : from.number;
#pragma unroll
  for (int k = 0; k < kFloats; ++k) to[k] = one;
}

/// Each thread computes `kFloats` adjacent elements.
template <Function kFunction, int kFloats>
KERNEL(kThreads)
map(BY_VALUE MapArguments m) {
  let_next_come();
  int i = (block() * kThreads + thread()) * kFloats;
  if (i >= m.count) return wait_for_last();
  int left = 0, right = 0, made = 0;
  const int last = m.dimensions - 1;
  for (int d = last; d >= 0; --d) {
    const int along = d > 0 ? i % m.sizes[d] : i;
    if (d > 0) i /= m.sizes[d];
    left += along * m.left.strides[d];
    right += along * m.right.strides[d];
    made += along * m.made_strides[d];
  }
  wait_for_last();
  float x[kFloats], y[kFloats];
  read<kFloats>(x, m.left, left, m.left.strides[last]);
  read<kFloats>(y, m.right, right, m.right.strides[last]);
#pragma unroll
  for (int k = 0; k < kFloats; ++k)
    x[k] = Mapped<kFunction>::of(x[k], y[k], m.map.numbers[0], m.map.numbers[1], m.map.numbers[2]);
  store<kFloats>(m.made + made, x);
}

}  // namespace millrace::gpu
