// Streams of CUDA devices: what runs on one is captured and replayed.
#include <ATen/ATen.h>
#include <ATen/cuda/PeerToPeerAccess.h>
#include <c10/cuda/CUDAGuard.h>

#include <map>

#include "capture/backend.h"
#include "capture/copy_cuda.h"
#include "capture/devices.h"
#include "capture/graph_cuda.h"
#include "capture/one_thread.h"
#include "capture/own_stream_cuda.h"
#include "capture/plain_errors.h"
#include "capture/pool_cuda.h"

namespace millrace::capture {
namespace {

class CudaStream final : public Backend {
 public:
  CudaStream(c10::Device device, Lowering lowering)
      : device_(device),
        lowering_(std::move(lowering)),
        own_(device),
        stream_(c10::cuda::getStreamFromExternal(own_.get(), device.index())) {
    // While anything is captured, no memory goes back to the device: that of earlier recordings
    // must go now.
    c10::cuda::CUDACachingAllocator::emptyCache();
  }

  std::unique_ptr<Event> make_event() override {
    const c10::cuda::CUDAGuard on_device(device_);
    return std::make_unique<CudaEvent>(cudaEventDisableTiming);
  }

  std::unique_ptr<Recording> record(int pool, std::function<void()> body) override {
    return with_plain_errors([&] {
      std::unique_ptr<LoweredBody> lowered;
      run([&] {
        // What the body reads may have been made on another stream, by whoever set it up.
        C10_CUDA_CHECK(cudaDeviceSynchronize());
        if (lowering_) lowered = lowering_(body);
        lowered ? lowered->run() : body();  // libraries load their kernels and choose among them
      });
      stream_.synchronize();
      std::unique_ptr<Recording> recording;
      run([&] {
        const Pool::Use memory(pools_.try_emplace(pool, device_).first->second, stream_);
        Capturing capturing(own_.get());
        lowered ? lowered->run() : body();
        recording = std::make_unique<CudaRecording>(capturing.end(), std::move(lowered));
      });
      return recording;
    });
  }

  std::unique_ptr<Graph> assemble(const std::vector<GraphNode>& nodes) override {
    return with_plain_errors(
        [&] { return std::make_unique<CudaGraph>(nodes, device_, own_.get()); });
  }
  void run(std::function<void()> body) override {
    const c10::cuda::CUDAStreamGuard on_stream(stream_);
    const OneThread alone;
    body();
  }
  void copy(at::Tensor& to, const at::Tensor& from) override { copy_bytes(to, from); }
  void synchronize() override { stream_.synchronize(); }

 private:
  c10::Device device_;
  const Lowering lowering_;
  OwnStream own_;
  c10::cuda::CUDAStream stream_;
  std::map<int, Pool> pools_;
};

}  // namespace

std::unique_ptr<Backend> make_graph_backend(c10::Device device, Lowering lowering) {
  if (!device.is_cuda()) throw std::invalid_argument(device.str() + " runs steps as they are");
  return std::make_unique<CudaStream>(device, std::move(lowering));
}

bool reads(c10::Device device, c10::Device other) {
  if (device == other) return true;
  if (!device.is_cuda() || !other.is_cuda()) return false;
  return at::cuda::get_p2p_access(device.index(), other.index());
}

at::Tensor pinned_zeros(at::IntArrayRef sizes, at::ScalarType type) {
  return at::zeros(sizes, at::TensorOptions(type).pinned_memory(cuda_devices() > 0));
}

}  // namespace millrace::capture
