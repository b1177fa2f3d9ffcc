// What the kernels of capture/program/cuda are written in, on a host: a block's threads are fibers
// that take turns between barriers, in an order that changes each time.
#pragma once

#include <cuda_runtime_api.h>

#include <cmath>
#include <functional>
#include <vector>

#include "tests/host_device/host_device.h"

#define DEVICE inline
#define KERNEL(threads) __attribute__((visibility("default"))) void
#define BY_VALUE const

namespace host_device {

/// Runs `thread` as each thread of each block, one block after another. Shared memory is NaN at
/// first. \param memory what asynchronous copies may read, where the host reaches it. Faults
/// (hostDeviceFault) on what a GPU would trap or leave open: copies that are not aligned or read
/// elsewhere, writes behind shared memory.
void run_blocks(int blocks, int threads, std::size_t shared_bytes, const std::vector<Range>& memory,
                const std::function<void()>& thread);

/// The thread whose turn it is. (Initial-exec: this library is preloaded, and looks here often.)
struct Turn {
  int thread = 0, block = 0;
  float* shared = nullptr;
};
extern constinit thread_local Turn turn __attribute__((tls_model("initial-exec")));

void meet();
void copy_async(float* to, const float* from, int floats, bool there);
void commit();
void wait(int open);

}  // namespace host_device

namespace millrace::gpu {

inline int thread() {
  return host_device::turn.thread;
}
inline int block() {
  return host_device::turn.block;
}
inline void meet() {
  host_device::meet();
}
inline float* shared_memory() {
  return host_device::turn.shared;
}
inline void copy_async(float* to, const float* from, bool there) {
  host_device::copy_async(to, from, 1, there);
}
inline void copy_async_4(float* to, const float* from, bool there) {
  host_device::copy_async(to, from, 4, there);
}
inline void commit() {
  host_device::commit();
}
template <int kOpen>
void wait() {
  host_device::wait(kOpen);
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}

}  // namespace millrace::gpu
