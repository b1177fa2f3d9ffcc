// The recorder of a CUDA device: each stage has a stream of its own, on which a recording runs its
// body and is waited for.
#include <ATen/Context.h>         // which kernels
#include <c10/cuda/CUDAGuard.h>   // current device and stream
#include <c10/cuda/CUDAStream.h>  // streams made elsewhere
#include <cuda_runtime_api.h>     // device names

#include <cstdlib>  // setenv

#include "capture/own_stream_cuda.h"
#include "capture/recorder_cpu.h"

namespace millrace::capture {
namespace {

/// Hardware queues of a device: with the 8 that CUDA takes by default, eight stages and their
/// copies would wait for one another. It is read when CUDA starts, so this comes before main().
const int queues_set = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);

class CudaRecording final : public Recording {
 public:
  CudaRecording(std::function<void()> body, c10::cuda::CUDAStream stream)
      : body_(std::move(body)), stream_(stream) {}

  void replay() override {
    const c10::cuda::CUDAStreamGuard on_stream(stream_);
    try {
      body_();
    } catch (...) {
      cudaStreamSynchronize(stream_.stream());  // it uses what goes now
      throw;
    }
    // What was written must be there when the hand-off says so.
    stream_.synchronize();
  }

 private:
  std::function<void()> body_;
  c10::cuda::CUDAStream stream_;
};

class CudaRecorder final : public Recorder {
 public:
  explicit CudaRecorder(c10::Device device)
      : own_(device), stream_(c10::cuda::getStreamFromExternal(own_.get(), device.index())) {
    // The step's tensors were made on another stream.
    const c10::cuda::CUDAGuard on_device(device);
    C10_CUDA_CHECK(cudaDeviceSynchronize());
  }

  std::unique_ptr<Recording> record(std::function<void()> body) override {
    return std::make_unique<CudaRecording>(std::move(body), stream_);
  }

 private:
  OwnStream own_;
  c10::cuda::CUDAStream stream_;
};

}  // namespace

std::unique_ptr<Recorder> make_recorder(c10::Device device) {
  if (device.is_cpu()) return make_cpu_recorder();
  return std::make_unique<CudaRecorder>(device);
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
