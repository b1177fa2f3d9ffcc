// Elementwise functions with broadcast operands, copies, sums of parts, squared errors.
#pragma once

#include "capture/program/cuda/block.cuh"
#include "capture/program/kernels/function.h"

namespace millrace::gpu {

using kernels::Function;

DEVICE float where(bool condition, float yes, float no) {
  return condition ? yes : no;
}
DEVICE float minus_times(float a, float b, float c) {
  return fmaf(-a, b, c);
}
DEVICE float sigmoid_of(float x) {
  return activated(x, Activation::sigmoid);
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
DEVICE float expm1_below(float x) {
  return expm1f(x);
}

#define FORMULA DEVICE
#include "capture/program/kernels/functions-inl.h"

struct Copied {
  DEVICE static float of(float x, float, float, float, float) { return x; }
};

/// `kFloats` elements of an operand, either consecutive from `offset` or all the same.
template <int kFloats>
DEVICE void read(float* to, const Spread& from, int offset, int stride) {
  if (kFloats == 4 && from.at && stride == 1) return load<4>(to, from.at + offset);
  const float one = from.at ? from.at[offset] : from.number;
#pragma unroll
  for (int k = 0; k < kFloats; ++k) to[k] = one;
}

/// Each thread computes `kFloats` adjacent elements.
template <class F, int kFloats>
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
    x[k] = F::of(x[k], y[k], m.numbers[0], m.numbers[1], m.numbers[2]);
  store<kFloats>(m.made + made, x);
}

/// One thread per sum.
KERNEL(kThreads) add_up_parts(BY_VALUE PartsArguments arguments) {
  let_next_come();
  int own = block(), k = 0;
  while (own >= arguments.all[k].blocks) own -= arguments.all[k++].blocks;
  const Parts& p = arguments.all[k];
  const int i = own * kThreads + thread();
  wait_for_last();
  if (i >= p.count) return;
  float sum = 0;
#pragma unroll 8
  for (int slice = 0; slice < p.slices; ++slice) sum += p.parts[(long long)(slice)*p.count + i];
  p.sum[i] = p.accumulate ? p.sum[i] + sum : sum;
}

/// The host sees a Unit whole, and only after all that was written before.
template <class Unit>
KERNEL(kThreads)
copy_bytes(BY_VALUE CopyArguments c) {
  start();
  if (c.to_host) order_writes();
  for (int i = block() * kThreads + thread(); i < c.bytes / int(sizeof(Unit));
       i += c.blocks * kThreads)
    static_cast<Unit*>(c.to)[i] = static_cast<const Unit*>(c.from)[i];
}

/// One thread per pixel. Each float is the quotient correctly rounded, as on a core.
KERNEL(kThreads) sample_of_bytes(BY_VALUE BytesArguments b) {
  start();
  const int pixel = block() * kThreads + thread();
  if (pixel >= b.pixels) return;
  for (int c = 0; c < b.channels; ++c)
    b.to[c * b.pixels + pixel] = float(b.bytes[pixel * b.channels + c]) / 255;
}

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
