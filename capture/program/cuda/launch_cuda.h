#pragma once

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "capture/program/cuda/arguments.h"
#include "capture/program/cuda/compiler.h"
#include "capture/program/cuda/plans.h"
#include "capture/program/operation.h"

namespace millrace::program {

inline const cudaDeviceProp& device_properties() {
  return *at::cuda::getCurrentDeviceProperties();
}

struct LaunchShape {
  int threads = 0;
  std::size_t shared_floats = 0;
  int cluster = 1;     ///< blocks per cluster, along x; divides their number
  bool early = false;  ///< may begin before the previous launch is over: start() waits for it
};

/// A kernel and its launch shape; arguments come with each launch. Thread-compatible.
class Launch {
 public:
  Launch() = default;
  /// Compiles the kernel if necessary, as gpu::kernel() does.
  Launch(const std::string& expression, const LaunchShape& shape);
  /// Launches on the current stream; no-op for 0 blocks.
  template <class Arguments>
  void operator()(dim3 blocks, Arguments arguments) const {
    launch(blocks, &arguments);
  }

  /// Whether the blocks of an early launch load all SMs alike. Otherwise it crowds onto the SMs
  /// that the previous one left idle: on an H100 that took up to 1.8 times as long.
  bool lies_evenly(dim3 blocks) const;
  void launch(dim3 blocks, void* arguments) const;

 private:
  const void* kernel_ = nullptr;
  std::string name_;  ///< for errors
  LaunchShape shape_;
};

/// Nanoseconds per `launch` in a graph of several: the minimum of some tries.
double time_launches(const std::function<void()>& launch);

// See prepare_gpu_call() and gpu_convolution().
std::unique_ptr<Prepared> prepare_launches(const std::vector<GpuKernel>& kernels, GpuBind bind,
                                           std::size_t scratch_bytes);
std::unique_ptr<Prepared> launched_convolution(const Node& node);

}  // namespace millrace::program
