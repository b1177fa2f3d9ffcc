// Functions of a matrix's rows and columns, and sums over channels.
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

/// One block per channel.
KERNEL(kThreads) channel_sums(BY_VALUE SumArguments s) {
  start();
  const float* const x = s.x + (long long)(block()) * s.count;
  float part = 0;
  for (int i = thread(); i < s.count; i += kThreads) part += x[i];
  const double sum = sum_of_block<kThreads>(part);
  if (thread() == 0) s.sums[block()] = float(sum * s.factor);
}

constexpr int kColumnSharers = kSumThreads / kColumns;

/// of(index) of a column summed over the rows; held by the first `kColumns` threads.
template <class Of>
DEVICE float column_sum(int rows, int columns, const Of& of) {
  const int column = block() * kColumns + thread() % kColumns;
  float sum = 0;
  for (int r = thread() / kColumns; r < rows && column < columns; r += kColumnSharers)
    sum += of(r, r * columns + column);
  float* const all = shared_memory();
  meet();
  all[thread()] = sum;
  for (int half = kSumThreads / 2; half >= kColumns; half /= 2) {
    meet();
    if (thread() < half) all[thread()] += all[thread() + half];
  }
  return all[thread()];
}

KERNEL(kSumThreads) column_sums(BY_VALUE SumArguments s) {
  start();
  const float sum = column_sum(s.count, s.columns, [&](int, int i) { return s.x[i]; });
  const int column = block() * kColumns + thread();
  if (thread() < kColumns && column < s.columns) s.sums[column] = sum * s.factor;
}

KERNEL(kSumThreads) layer_norm_weight_gradients(BY_VALUE NormArguments n) {
  start();
  const float product = column_sum(n.groups, n.size, [&](int r, int i) {
    return n.gradient[i] * ((n.source[i] - n.mean[r]) * n.rstd[r]);
  });
  const float sum = column_sum(n.groups, n.size, [&](int, int i) { return n.gradient[i]; });
  const int column = block() * kColumns + thread();
  if (thread() >= kColumns || column >= n.size) return;
  if (n.weight_gradient) n.weight_gradient[column] = product;
  if (n.bias_gradient) n.bias_gradient[column] = sum;
}

}  // namespace millrace::gpu
