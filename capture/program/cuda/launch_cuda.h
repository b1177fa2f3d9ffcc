// A kernel with its launch, as an operation of a step program.
#pragma once

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAStream.h>

#include <functional>
#include <string>
#include <utility>

#include "capture/program/cuda/compiler.h"
#include "capture/program/operations.h"

namespace millrace::program {

inline float* floats(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<float*>(tensor.data_ptr()) : nullptr;
}

inline const cudaDeviceProp& device_properties() {
  return *at::cuda::getCurrentDeviceProperties();
}

/// How a kernel is launched.
struct LaunchShape {
  int threads = 0;
  std::size_t shared_floats = 0;
  int cluster = 1;     ///< blocks that share their memory, a part of all
  bool early = false;  ///< may begin before what was launched before is over: start() waits for it
};

/// A kernel with its launch; what it is told comes with each. Thread-compatible.
class Launch {
 public:
  Launch() = default;
  /// Compiles the kernel if need be: gpu::kernel().
  Launch(const std::string& expression, const LaunchShape& shape);
  Launch(const std::string& expression, int threads, std::size_t shared_floats = 0)
      : Launch(expression, LaunchShape{threads, shared_floats}) {}
  /// On the current stream.
  template <class Arguments>
  void operator()(int blocks, Arguments arguments) const {
    void* all[] = {&arguments};
    launch(blocks, all);
  }

 private:
  void launch(int blocks, void** arguments) const;

  const void* kernel_ = nullptr;
  LaunchShape shape_;
};

/// Milliseconds that `launch` takes, of a graph of several: the least of some tries.
double time_launches(const std::function<void()>& launch);

template <class... Numbers>
std::string numbers(const Numbers&... all) {
  std::string text;
  ((text += (text.empty() ? "" : ", ") + std::to_string(all)), ...);
  return text;
}

/// One launch of a kernel that is told addresses and a count.
template <class Arguments>
class GpuCall final : public Prepared {
 public:
  using Bind = std::function<Arguments(const Node& node)>;
  GpuCall(std::string name, const std::string& expression, int threads, int blocks,
          std::size_t shared, Bind bind)
      : launch_(expression, threads, shared), blocks_(blocks), bind_(std::move(bind)) {
    info.name = std::move(name);
    info.kernel = "gpu";
  }
  void bind(const Node& node, char*) override { arguments_ = bind_(node); }
  void run(int, kernels::Share) override { launch_(blocks_, arguments_); }

 private:
  const Launch launch_;
  const int blocks_;
  const Bind bind_;
  Arguments arguments_{};
};

std::unique_ptr<Prepared> gpu_convolution(const Node& node);
std::unique_ptr<Prepared> gpu_weight_gradients(const Node& node);

}  // namespace millrace::program
