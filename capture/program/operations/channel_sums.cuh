#pragma once

#include "capture/program/cuda/block.cuh"

namespace millrace::gpu {

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

}  // namespace millrace::gpu
