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

/// A kernel with its launch; what it is told comes with each.
class Launch {
 public:
  Launch() = default;
  Launch(const std::string& expression, int threads, std::size_t shared_floats = 0)
      : kernel_(
            gpu::kernel(expression, c10::cuda::current_device(), shared_floats * sizeof(float))),
        threads_(threads),
        shared_bytes_(shared_floats * sizeof(float)) {}
  template <class Arguments>
  void operator()(int blocks, Arguments arguments) const {
    void* all[] = {&arguments};
    C10_CUDA_CHECK(cudaLaunchKernel(kernel_, dim3(unsigned(blocks)), dim3(unsigned(threads_)), all,
                                    shared_bytes_, c10::cuda::getCurrentCUDAStream()));
  }

 private:
  const void* kernel_ = nullptr;
  int threads_ = 0;
  std::size_t shared_bytes_ = 0;
};

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
