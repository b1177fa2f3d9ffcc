// What kernels are written in. For NVRTC; on a host tests/host_device/block.h takes its place.
#pragma once

#include "capture/program/cuda/arguments.h"
#include "capture/program/cuda/plans.h"

#ifdef MILLRACE_HOST_DEVICE
#include MILLRACE_HOST_DEVICE
#else
#define DEVICE __device__ __forceinline__
#define KERNEL(threads) __global__ void __launch_bounds__(threads, 1)
/// At most 128 registers per thread, or with `many`, no limit.
#define BOUNDED_KERNEL(threads, many) \
  __global__ void __launch_bounds__(threads, (many) || (threads) > 256 ? 1 : 512 / (threads))
#define BY_VALUE const __grid_constant__

namespace millrace::gpu {

DEVICE int thread() {
  return int(threadIdx.x);
}
/// Reads the index anew: values computed from it occupy no registers between calls.
DEVICE int thread_again() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}
DEVICE int block() {
  return int(blockIdx.x);
}
DEVICE int block_y() {
  return int(blockIdx.y);
}
DEVICE int block_z() {
  return int(blockIdx.z);
}
/// Barrier of the block: afterwards the threads see each other's writes.
DEVICE void meet() {
  __syncthreads();
}
/// Barrier that returns whether `own` is true for any thread.
DEVICE bool meet_any(bool own) {
  return __syncthreads_or(own);
}
/// The thread's later writes come after what it has seen written, for the host, too.
DEVICE void order_writes() {
  __threadfence_system();
}
/// The block's dynamic shared memory; 16-byte aligned.
DEVICE float* shared_memory() {
  extern __shared__ float4 memory[];
  return reinterpret_cast<float*>(memory);
}

// Asynchronous copies to shared memory: those begun before a commit() are done after a wait() that
// leaves fewer commits open, and visible to others after a meet().

/// Copies four bytes, or zero without reading `from`.
DEVICE void copy_async(float* to, const float* from, bool there) {
  asm volatile(
      "cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(unsigned(__cvta_generic_to_shared(to))),
      "l"(from), "r"(there ? 4 : 0)
      : "memory");
}
/// Copies 16 bytes, or zeros without reading `from`; both addresses 16-byte aligned.
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

/// Lets the next launch begin, if it is an early one.
DEVICE void let_next_come() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/// An early launch waits here for the previous one.
DEVICE void wait_for_last() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Blocks with distributed shared memory; without a cluster launch, clusters of one.
#if __CUDA_ARCH__ >= 900
DEVICE int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
DEVICE int cluster_size() {
  int size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}
/// The cluster's index along x.
DEVICE int cluster() {
  int index;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}
DEVICE void meet_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
/// Reads at another block's counterpart of `at`, an address in this block's shared memory.
DEVICE float4 of_cluster(const float4* at, int rank) {
  float4 four;
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(there)
               : "r"(unsigned(__cvta_generic_to_shared(at))), "r"(rank));
  asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
               : "r"(there)
               : "memory");
  return four;
}
#else
DEVICE int cluster_rank() {
  return 0;
}
DEVICE int cluster_size() {
  return 1;
}
DEVICE int cluster() {
  return block();
}
DEVICE void meet_cluster() {
  __syncthreads();
}
DEVICE float4 of_cluster(const float4* at, int) {
  return *at;
}
#endif

// Tensor cores. All lanes of a warp must call these together.

DEVICE unsigned float_bits(float value) {
  return __float_as_uint(value);
}
DEVICE float bits_float(unsigned bits) {
  return __uint_as_float(bits);
}
/// Two bfloat16, rounded to nearest even.
DEVICE unsigned two_halves(float low, float high) {
  unsigned halves;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(halves) : "f"(high), "f"(low));
  return halves;
}
DEVICE void multiply_tf32(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE void multiply_halves(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace millrace::gpu
#endif

namespace millrace::gpu {

/// Call before a kernel reads or writes shared data.
DEVICE void start() {
  let_next_come();
  wait_for_last();
}

// What formulas for cores and GPUs are written in.
using Number = float;
DEVICE float constant(double value) {
  return float(value);
}
DEVICE float times_plus(float a, float b, float c) {
  return fmaf(a, b, c);
}
DEVICE float root_of(float a) {
  return sqrtf(a);
}
DEVICE float size_of(float a) {
  return fabsf(a);
}

/// One element, with the interface of Highway's vectors of elements.
struct Element {
  int at;
  DEVICE float load(const float* buffer) const { return buffer[at]; }
  DEVICE void store(float* buffer, float value) const { buffer[at] = value; }
  DEVICE float only(float value) const { return value; }
};

DEVICE float activated(float value, Activation activation) {
  if (activation == Activation::kRelu) return value <= 0 ? 0 : value;  // NaN stays NaN
  return activation == Activation::kSigmoid ? 1 / (1 + expf(-value)) : value;
}

/// Loads one float, or a multiple of 4 from a 16-byte aligned address.
template <int kCount>
DEVICE void load(float* to, const float* from) {
  if constexpr (kCount == 1) *to = *from;
#pragma unroll
  for (int i = 0; i + 4 <= kCount; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    to[i] = four.x;
    to[i + 1] = four.y;
    to[i + 2] = four.z;
    to[i + 3] = four.w;
  }
}

}  // namespace millrace::gpu
