// Eager execution on CUDA devices, and LibTorch's settings for them.
#include <ATen/Context.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <utility>

#include "capture/devices.h"
#include "capture/eager.h"
#include "capture/graph_cuda.h"

namespace millrace::capture {
namespace {

/// With CUDA's default of 8 hardware queues, eight stages and their copies would wait for one
/// another. CUDA reads this when it starts, so it is set before main().
const int queues_set = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);

/// Uses the stage's own stream and blocks: results must be written before they are handed over.
class EagerCudaBackend final : public EagerBackend {
 public:
  explicit EagerCudaBackend(c10::Device device)
      : own_(new_stream(device)),
        stream_(c10::cuda::getStreamFromExternal(own_.get(), device.index())) {}

  void run(std::function<void()> body) override {
    const c10::cuda::CUDAStreamGuard on_stream(stream_);
    // Its first inputs were made on other streams.
    if (std::exchange(fresh_, false)) C10_CUDA_CHECK(cudaDeviceSynchronize());
    try {
      body();
    } catch (...) {
      cudaStreamSynchronize(stream_.stream());  // running work uses what is now freed
      throw;
    }
    stream_.synchronize();
  }
  void synchronize() override { stream_.synchronize(); }

 private:
  OwnStream own_;
  c10::cuda::CUDAStream stream_;
  bool fresh_ = true;
};

}  // namespace

std::unique_ptr<Backend> make_eager_backend(c10::Device device) {
  if (device.is_cpu()) return std::make_unique<EagerBackend>();
  return std::make_unique<EagerCudaBackend>(device);
}

void use_repeatable_kernels() {
  at::Context& context = at::globalContext();
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);  // its choice varies from run to run
  context.setAllowTF32CuDNN(false);
  context.setAllowTF32CuBLAS(false);
}

int cuda_devices() {
  return int(c10::cuda::device_count());
}

std::string cuda_device_name(int index) {
  cudaDeviceProp properties{};
  if (index >= cuda_devices()) return "";
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  return properties.name;
}

std::string cuda_version() {
  return std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
}

}  // namespace millrace::capture
