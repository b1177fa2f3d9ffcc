// Eager execution on a CUDA device, and what LibTorch is told and asked of such devices.
#include <ATen/Context.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <utility>

#include "capture/devices.h"
#include "capture/eager.h"
#include "capture/own_stream_cuda.h"

namespace millrace::capture {
namespace {

/// Hardware queues of a device: with the 8 that CUDA takes by default, eight stages and their
/// copies would wait for one another. It is read when CUDA starts, so this comes before main().
const int queues_set = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);

/// On a stream of the stage's own, and waited for: what was written must be there when the hand-off
/// says so.
class EagerCudaBackend final : public EagerBackend {
 public:
  explicit EagerCudaBackend(c10::Device device)
      : own_(device), stream_(c10::cuda::getStreamFromExternal(own_.get(), device.index())) {}

  void run(std::function<void()> body) override {
    const c10::cuda::CUDAStreamGuard on_stream(stream_);
    // What it uses first was made on other streams.
    if (std::exchange(fresh_, false)) C10_CUDA_CHECK(cudaDeviceSynchronize());
    try {
      body();
    } catch (...) {
      cudaStreamSynchronize(stream_.stream());  // it uses what goes now
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

std::unique_ptr<Backend> make_eager_cuda_backend(c10::Device device) {
  return std::make_unique<EagerCudaBackend>(device);
}

void use_repeatable_kernels() {
  at::Context& context = at::globalContext();
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);  // what it chooses depends on the moment
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
