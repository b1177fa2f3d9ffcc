#include <ATen/ATen.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/MemPool.h>  // a new pool's number
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include <map>
#include <utility>

#include "capture/eager.h"
#include "capture/graph_cuda.h"
#include "capture/one_thread.h"
#include "capture/plain_errors.h"
#include "stages/operators.h"

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

namespace device_half = c10::cuda::CUDACachingAllocator;

at::HostAllocator& host_half() {
  return *at::getHostAllocator(at::kCUDA);
}

/// Device memory and pinned host memory that LibTorch gives to nobody else while the pool lives.
/// LibTorch counts the users of each half separately and never reuses a pool whose count was zero,
/// as after a trial or a failed capture: so the pool counts as a user of both.
class Pool {
 public:
  explicit Pool(c10::Device device)
      : device_(device.index()), id_(at::cuda::MemPool::graph_pool_handle()) {
    device_half::createOrIncrefPool(device_, id_);
    host_half().begin_allocate_to_pool(id_, [](c10::Stream) { return false; });  // counts, too
    host_half().end_allocate_to_pool(id_);
  }
  ~Pool() {
    host_half().release_pool(id_);
    device_half::releasePool(device_, id_);
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// While it lives, allocations on `stream` come from the pool. One per pool at a time.
  class Use {
   public:
    Use(const Pool& pool, c10::cuda::CUDAStream stream) : pool_(pool) {
      device_half::beginAllocateToPool(
          pool_.device_, pool_.id_,
          [mine = stream.stream()](cudaStream_t other) { return other == mine; });
      host_half().begin_allocate_to_pool(
          pool_.id_, [mine = stream.unwrap()](c10::Stream other) { return other == mine; });
    }
    ~Use() {
      host_half().end_allocate_to_pool(pool_.id_);
      host_half().release_pool(pool_.id_);
      device_half::endAllocateToPool(pool_.device_, pool_.id_);
      device_half::releasePool(pool_.device_, pool_.id_);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    const Pool& pool_;
  };

 private:
  c10::DeviceIndex device_;
  c10::MempoolId_t id_;
};

/// Copies between any of host (pinned), this device and its peers. An operator, so that step
/// programs record it; LibTorch's own copy involves the other device's stream.
void copy_bytes(const at::Tensor& to, const at::Tensor& from) {
  MILLRACE_CHECK_CUDA(cudaMemcpyAsync(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes(),
                                      cudaMemcpyDefault, c10::cuda::getCurrentCUDAStream()));
}

const stages::Operator<copy_bytes> copy_operator("copy_bytes(Tensor(a!) to, Tensor from) -> ()");

class CudaStream final : public Backend {
 public:
  CudaStream(c10::Device device, Lowering lowering)
      : device_(device),
        lowering_(std::move(lowering)),
        own_(new_stream(device)),
        stream_(c10::cuda::getStreamFromExternal(own_.get(), device.index())) {
    // During a capture no memory is returned to the device, so free that of earlier recordings now.
    device_half::emptyCache();
  }

  std::unique_ptr<Event> make_event() override {
    const c10::cuda::CUDAGuard on_device(device_);
    return std::make_unique<CudaEvent>(cudaEventDisableTiming);
  }

  std::unique_ptr<Recording> record(int pool, std::function<void()> body) override {
    return with_plain_errors([&] {
      LoweredBody lowered;
      run([&] {
        // The body's inputs may have been made on other streams.
        MILLRACE_CHECK_CUDA(cudaDeviceSynchronize());
        if (lowering_) lowered = lowering_(body);
        lowered.run ? lowered.run() : body();  // libraries load and choose their kernels
      });
      stream_.synchronize();
      std::unique_ptr<Recording> recording;
      run([&] {
        const Pool::Use memory(pools_.try_emplace(pool, device_).first->second, stream_);
        Capturing capturing(own_.get());
        lowered.run ? lowered.run() : body();
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
    const auto alone = on_one_thread();
    body();
  }
  void copy(at::Tensor& to, const at::Tensor& from) override { copy_operator(to, from); }
  void synchronize() override { stream_.synchronize(); }

 private:
  c10::Device device_;
  const Lowering lowering_;
  OwnStream own_;
  c10::cuda::CUDAStream stream_;
  std::map<int, Pool> pools_;
};

}  // namespace

std::unique_ptr<Backend> make_eager_stream(c10::Device device) {
  return std::make_unique<EagerCudaBackend>(device);
}

std::unique_ptr<Backend> make_stream(c10::Device device, Lowering lowering) {
  return std::make_unique<CudaStream>(device, std::move(lowering));
}

}  // namespace millrace::capture
