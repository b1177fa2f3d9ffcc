// Sums of the parts that blocks leave.
#pragma once

#include "capture/program/cuda/block.cuh"

namespace millrace::gpu {

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

}  // namespace millrace::gpu
