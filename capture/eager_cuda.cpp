#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <utility>

#include "capture/eager.h"
#include "capture/graph_cuda.h"

namespace millrace::capture {
namespace {

/// Uses the stage's own stream and blocks: results must be written before they are handed over.
class EagerCudaBackend final : public EagerBackend {
 public:
  explicit EagerCudaBackend(c10::Device device)
      : own_(new_stream(device)),
        stream_(c10::cuda::getStreamFromExternal(own_.get(), device.index())) {}

  void run(std::function<void()> body) override {
    const c10::cuda::CUDAStreamGuard on_stream(stream_);
    // Other streams may have written the first inputs.
    if (std::exchange(fresh_, false)) MILLRACE_CHECK_CUDA(cudaDeviceSynchronize());
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

std::unique_ptr<Backend> make_eager_stream(c10::Device device) {
  return std::make_unique<EagerCudaBackend>(device);
}

}  // namespace millrace::capture
