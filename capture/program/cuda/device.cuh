// What a GPU's kernels are written in. NVRTC reads this; a host reads tests/host_device/block.h
// instead, where a block's threads take turns.
#pragma once

#include "capture/program/cuda/arguments.h"
#include "capture/program/cuda/plans.h"

#ifdef MILLRACE_HOST_DEVICE
#include MILLRACE_HOST_DEVICE
#else
#define DEVICE __device__ __forceinline__
#define KERNEL(threads) __global__ void __launch_bounds__(threads)
#define BY_VALUE const __grid_constant__

namespace millrace::gpu {

DEVICE int thread() {
  return int(threadIdx.x);
}
DEVICE int block() {
  return int(blockIdx.x);
}
/// Waits for the block's other threads, which then see what this one wrote.
DEVICE void meet() {
  __syncthreads();
}
/// The block's own memory, as much as its launch asked for; 16-byte aligned.
DEVICE float* shared_memory() {
  extern __shared__ float4 memory[];
  return reinterpret_cast<float*>(memory);
}

// Copies to shared memory that go on while the thread computes: those begun before commit() are
// done after a wait() that leaves fewer commits open, and seen by others after a meet().

/// Four bytes, or a zero; `from` is an address that can be read even so.
DEVICE void copy_async(float* to, const float* from, bool there) {
  asm volatile(
      "cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(unsigned(__cvta_generic_to_shared(to))),
      "l"(from), "r"(there ? 4 : 0)
      : "memory");
}
/// Sixteen bytes, or zeros; both addresses 16-byte aligned.
DEVICE void copy_async_4(float* to, const float* from, bool there) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(unsigned(__cvta_generic_to_shared(to))),
      "l"(from), "r"(there ? 16 : 0)
      : "memory");
}
DEVICE void commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kOpen>
DEVICE void wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}

}  // namespace millrace::gpu
#endif

namespace millrace::gpu {

DEVICE float activated(float value, Activation activation) {
  if (activation == Activation::relu) return value <= 0 ? 0 : value;  // a NaN stays one
  return activation == Activation::sigmoid ? 1 / (1 + expf(-value)) : value;
}

/// `kCount` floats, a multiple of 4, from a 16-byte aligned address.
template <int kCount>
DEVICE void load(float* to, const float* from) {
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    to[i] = four.x;
    to[i + 1] = four.y;
    to[i + 2] = four.z;
    to[i + 3] = four.w;
  }
}

}  // namespace millrace::gpu
