#pragma once

#include "capture/program/cuda/block.cuh"

namespace millrace::gpu {

/// to = exp(a) over its row's sum, or the logarithm of that. One block per row.
template <int kThreads>
KERNEL(kThreads)
softmax(BY_VALUE RowArguments r) {
  start();
  const float* const x = r.a + (long long)(block()) * r.row;
  float* const to = r.to + (long long)(block()) * r.row;
  const auto larger = [](double a, double b) { return b > a || b != b ? b : a; };  // NaN wins
  double own = *x;
  for (int i = thread(); i < r.row; i += kThreads) own = larger(own, x[i]);
  const float most = float(combined_in_block<kThreads>(own, larger));
  float part = 0;
  for (int i = thread(); i < r.row; i += kThreads) part += expf(x[i] - most);
  const auto sum = float(sum_of_block<kThreads>(part));
  const float shift = most + logf(sum), factor = 1 / sum;
  for (int i = thread(); i < r.row; i += kThreads)
    to[i] = r.logarithm ? x[i] - shift : expf(x[i] - most) * factor;
}

/// Softmax y: y * (dy - sum of dy * y). Its logarithm z: dy - exp(z) * sum of dy.
template <int kThreads>
KERNEL(kThreads)
softmax_gradient(BY_VALUE RowArguments r) {
  start();
  const long long first = (long long)(block()) * r.row;
  const float *const dy = r.a + first, *const y = r.b + first;
  float part = 0;
  for (int i = thread(); i < r.row; i += kThreads) part += r.logarithm ? dy[i] : dy[i] * y[i];
  const auto sum = float(sum_of_block<kThreads>(part));
  for (int i = thread(); i < r.row; i += kThreads)
    r.to[first + i] = r.logarithm ? fmaf(-expf(y[i]), sum, dy[i]) : y[i] * (dy[i] - sum);
}

}  // namespace millrace::gpu
