// The project's own kernels, read from their .cu files by the host's compiler and done thread by
// thread, block by block: what the first thread of a block leaves for the others is there.
#include <cmath>
#include <cstdint>
#include <new>
#include <type_traits>

#include "tests/host_device/host_device.h"

namespace {
struct Index {
  unsigned x = 0;
};
thread_local Index block_index, thread_index, block_size;
}  // namespace
#undef __global__
#undef __device__
#undef __shared__
#define __global__
#define __device__
#define __shared__ static thread_local
#define __syncthreads()
#define __fdiv_rn(a, b) ((a) / (b))
#define blockIdx block_index
#define threadIdx thread_index
#define blockDim block_size

#include "stages/sample_kernel_cuda.cu"
#include "stages/update_kernel_cuda.cu"

namespace {

using namespace millrace::stages;
using host_device::Work;

template <class T>
T* reach(T* address) {
  return static_cast<T*>(hostDeviceReach(address));
}

template <class Thread>
std::function<void()> all_threads(dim3 grid, dim3 block, const Thread& thread) {
  return [=] {
    block_size.x = block.x;
    for (block_index.x = 0; block_index.x < grid.x; ++block_index.x)
      for (thread_index.x = 0; thread_index.x < block.x; ++thread_index.x) thread();
  };
}

UpdatePointers reached(UpdatePointers p) {
  p.from = reach(p.from);
  p.to = reach(p.to);
  p.gradient = reach(p.gradient);
  for (float*& buffer : p.state.buffers) buffer = reach(buffer);
  p.state.steps = reach(p.state.steps);
  p.rate = reach(p.rate);
  p.finite = reach(p.finite);
  return p;
}

Work of_update(const host_device::Launch& launch) {
  const auto [grid, block, arguments, shared_bytes, name, cluster, early] = launch;
  const auto n = *static_cast<UpdateNumbers*>(arguments[0]);
  const auto p = *static_cast<UpdatePointers*>(arguments[1]), here = reached(p);
  const std::size_t bytes = std::size_t(p.count) * sizeof(float);
  Work work{.name = "millrace's update", .run = all_threads(grid, block, [=] { update(n, here); })};
  work.ranges = {{p.from, bytes, false},
                 {p.to, bytes, true},
                 {p.gradient, bytes, false},
                 {p.rate, sizeof(double), false},
                 {p.finite, sizeof(bool), false}};
  for (float* const buffer : p.state.buffers) {
    if (buffer) work.ranges.push_back({buffer, bytes, true});
  }
  if (p.state.steps) work.ranges.push_back({p.state.steps, sizeof(float), false});
  return work;
}

Work of_count_step(const host_device::Launch& launch) {
  const auto [grid, block, arguments, shared_bytes, name, cluster, early] = launch;
  const auto p = *static_cast<UpdatePointers*>(arguments[0]), here = reached(p);
  return {.name = "millrace's count_step",
          .run = all_threads(grid, block, [=] { count_step(here); }),
          .ranges = {{p.state.steps, sizeof(float), true}, {p.finite, sizeof(bool), false}}};
}

Work of_sample_of(const host_device::Launch& launch) {
  const auto [grid, block, arguments, shared_bytes, name, cluster, early] = launch;
  const auto bytes = *static_cast<const std::uint8_t**>(arguments[0]);
  const auto pixels = *static_cast<std::int64_t*>(arguments[1]);
  const int channels = *static_cast<int*>(arguments[2]);
  const auto sample = *static_cast<float**>(arguments[3]);
  const auto count = std::size_t(pixels * channels);
  return {.name = "millrace's sample_of",
          .run = all_threads(grid, block,
                             [=, from = reach(bytes), to = reach(sample)] {
                               sample_of(from, pixels, channels, to);
                             }),
          .ranges = {{bytes, count, false}, {sample, count * sizeof(float), true}}};
}

const bool registered = [] {
  hostDevicePlay("6updateE", of_update);
  hostDevicePlay("10count_stepE", of_count_step);
  hostDevicePlay("9sample_ofE", of_sample_of);
  return true;
}();

}  // namespace
