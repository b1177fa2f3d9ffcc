// What the kernels of capture/program/cuda are written in, on a host: the threads of a cluster's
// blocks are fibers that take turns between barriers, in an order that changes each time.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cmath>
#include <functional>
#include <vector>

#include "tests/host_device/host_device.h"

#define DEVICE inline
#define KERNEL(threads) __attribute__((visibility("default"))) void
#define BOUNDED_KERNEL(threads, many) KERNEL(threads)
#define BY_VALUE const

namespace host_device {

/// Runs `thread` as each thread of each block, one cluster after another. Shared memory is NaN at
/// first. \param memory what asynchronous copies may read, where the host reaches it. Faults
/// (hostDeviceFault) on what a GPU would trap or leave open: copies that are not aligned or read
/// elsewhere, writes behind shared memory, threads that wait for others that don't come, warps
/// whose lanes part, a launch that comes early and does not wait.
void run_blocks(const Launch& launch, const std::vector<Range>& memory,
                const std::function<void()>& thread);

/// The thread whose turn it is. (Initial-exec: this library is preloaded, and looks here often.)
struct Turn {
  int thread = 0, block = 0, y = 0, z = 0, rank = 0, cluster = 1;
  float* shared = nullptr;
};
extern constinit thread_local Turn turn __attribute__((tls_model("initial-exec")));

}  // namespace host_device

namespace millrace::gpu {

#define GETTER(Number, name, what) \
  inline Number name() {           \
    return what;                   \
  }
GETTER(int, thread, host_device::turn.thread)
GETTER(int, thread_again, thread())
GETTER(int, block, host_device::turn.block)
GETTER(int, block_y, host_device::turn.y)
GETTER(int, block_z, host_device::turn.z)
GETTER(int, cluster, block() / host_device::turn.cluster)
GETTER(int, cluster_rank, host_device::turn.rank)
GETTER(int, cluster_size, host_device::turn.cluster)
GETTER(float*, shared_memory, host_device::turn.shared)
#undef GETTER
inline void let_next_come() {}
inline void order_writes() {}
void wait_for_last();
void meet();
bool meet_any(bool own);
void meet_cluster();
float4 of_cluster(const float4* at, int rank);
void copy_async(float* to, const float* from, bool there);
void copy_async_4(float* to, const float* from, bool there);
void commit();
/// Until so many commits are open.
void wait_until(int open);
template <int kOpen>
void wait() {
  wait_until(kOpen);
}
/// mma.sync: 16 x 8 numbers, of 8 products or, as bfloat16, of 16.
void multiply_tf32(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);
void multiply_halves(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline unsigned float_bits(float value) {
  return std::bit_cast<unsigned>(value);
}
inline float bits_float(unsigned bits) {
  return std::bit_cast<float>(bits);
}
inline unsigned two_halves(float low, float high) {
  const auto rounded = [](float value) {
    const unsigned bits = float_bits(value);
    return std::isnan(value) ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  };
  return rounded(low) | rounded(high) << 16;
}

}  // namespace millrace::gpu
