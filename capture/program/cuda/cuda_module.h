// The GPU's half of recording and replaying: a separate module, so runs on cores load no CUDA.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "capture/backend.h"
#include "capture/program/cuda/cache.h"
#include "capture/program/operation.h"
#include "capture/wire.h"

namespace millrace::capture {

/// What libmillrace_cuda.so exports. Uncommented functions do what their namesakes in
/// capture/backend.h, devices.h, wire.h, program/operation.h and program/cuda/cache.h do.
struct CudaModule {
  int (*devices)();
  std::string (*device_name)(int index);
  std::unique_ptr<Backend> (*make_eager_backend)(c10::Device device);
  std::unique_ptr<Backend> (*make_graph_backend)(c10::Device device, Lowering lowering);
  bool (*reads)(c10::Device device, c10::Device other);
  /// Whether the device can run our kernels.
  bool (*has_kernels)(c10::Device device);
  std::unique_ptr<program::Prepared> (*prepare_call)(const std::vector<program::GpuKernel>& kernels,
                                                     program::GpuBind bind,
                                                     std::size_t scratch_bytes);
  std::unique_ptr<program::Prepared> (*prepare_convolution)(const program::Node& node);
  gpu::Choices (*choices)();
  void (*take_choices)(const gpu::Choices& made);
};
extern "C" const CudaModule millrace_cuda;  ///< in the module

/// Loaded by the first call if NVIDIA's driver finds a device. Null without a device, or, after a
/// line on stderr, without the module. Thread-safe.
const CudaModule* cuda_module();
/// cuda_module(), or throws std::invalid_argument if that is null.
const CudaModule& need_cuda();

}  // namespace millrace::capture
