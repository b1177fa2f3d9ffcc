#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>
#include <nccl.h>

#include <cstring>
#include <stdexcept>
#include <thread>

#include "capture/buffers.h"
#include "capture/graph_cuda.h"
#include "capture/wire.h"

namespace millrace::capture {
namespace {

template <class Function>
Function entry(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

/// Functions of the NCCL that LibTorch has loaded: there must be no second one. Null without NCCL.
struct Nccl {
  decltype(&ncclGetUniqueId) new_id = entry<decltype(&ncclGetUniqueId)>("ncclGetUniqueId");
  decltype(&ncclCommInitRank) init = entry<decltype(&ncclCommInitRank)>("ncclCommInitRank");
  decltype(&ncclCommDestroy) destroy = entry<decltype(&ncclCommDestroy)>("ncclCommDestroy");
  decltype(&ncclCommAbort) abort = entry<decltype(&ncclCommAbort)>("ncclCommAbort");
  decltype(&ncclSend) send = entry<decltype(&ncclSend)>("ncclSend");
  decltype(&ncclRecv) receive = entry<decltype(&ncclRecv)>("ncclRecv");
  decltype(&ncclGroupStart) begin = entry<decltype(&ncclGroupStart)>("ncclGroupStart");
  decltype(&ncclGroupEnd) end = entry<decltype(&ncclGroupEnd)>("ncclGroupEnd");
  decltype(&ncclGetErrorString) words = entry<decltype(&ncclGetErrorString)>("ncclGetErrorString");
};

const Nccl& nccl() {
  static const Nccl found;
  return found;
}

void require(ncclResult_t result) {
  if (result != ncclSuccess) throw std::runtime_error(std::string("NCCL: ") + nccl().words(result));
}

class NcclWire final : public Wire {
 public:
  NcclWire(c10::Device device, BoundaryBuffers& way, bool sends)
      : device_(device), way_(way), sends_(sends), stream_(make_stream(device)) {
    for (std::size_t slot = 0; !sends && slot < way.ready.size(); ++slot)
      way.ready[slot] = stream_->make_event();
  }

  ~NcclWire() override {
    try {
      stream_->synchronize();
    } catch (const std::exception&) {
      // A failed device has no work left.
    }
    graphs_.clear();
    recordings_.clear();
    if (cutting_.joinable()) cutting_.join();
    if (comm_) nccl().destroy(comm_);
  }

  void connect(const std::string& name) override {
    const c10::cuda::CUDAGuard on_device(device_);
    ncclUniqueId id;
    std::memcpy(&id, name.data(), sizeof id);
    require(nccl().init(&comm_, 2, id, sends_ ? 0 : 1));
    for (std::size_t slot = 0; slot < way_.tensors.size(); ++slot) {
      // Both ends warm up with the same slot: NCCL sets up its channels then.
      recordings_.push_back(stream_->record(0, [this, slot] { transfer(way_.tensors[slot]); }));
      Event* const ready = way_.ready[slot].get();
      graphs_.push_back(stream_->assemble({{.recording = recordings_.back().get(),
                                            .wait = sends_ ? ready : nullptr,
                                            .signal = sends_ ? nullptr : ready}}));
    }
  }

  void move(int slot) override {
    if (!comm_) return;
    ++moves_;
    graphs_[std::size_t(slot)]->launch();
  }
  std::int64_t moves() const override { return moves_; }

  void cut() override {
    // Transfers in flight end at once, but abort() returns only when the recordings are gone.
    if (comm_) cutting_ = std::thread([comm = comm_] { nccl().abort(comm); });
    comm_ = nullptr;
  }

 private:
  void transfer(const std::vector<at::Tensor>& tensors) {
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device_.index()).stream();
    require(nccl().begin());
    for (const at::Tensor& tensor : tensors) {
      const std::size_t count = std::size_t(tensor.numel());
      require(sends_
                  ? nccl().send(tensor.const_data_ptr(), count, ncclFloat, 1, comm_, stream)
                  : nccl().receive(tensor.mutable_data_ptr(), count, ncclFloat, 0, comm_, stream));
    }
    require(nccl().end());
  }

  const c10::Device device_;
  BoundaryBuffers& way_;
  const bool sends_;
  std::unique_ptr<Backend> stream_;
  ncclComm_t comm_ = nullptr;  ///< null: not connected, or cut
  std::vector<std::unique_ptr<Recording>> recordings_;
  std::vector<std::unique_ptr<Graph>> graphs_;  ///< by slot
  std::int64_t moves_ = 0;
  std::thread cutting_;
};

std::vector<GpuId> gpus() {
  std::vector<GpuId> all(nccl().new_id ? std::size_t(c10::cuda::device_count()) : 0);
  for (std::size_t index = 0; index < all.size(); ++index) {
    cudaDeviceProp of;
    MILLRACE_CHECK_CUDA(cudaGetDeviceProperties(&of, int(index)));
    std::memcpy(all[index].data(), of.uuid.bytes, all[index].size());
  }
  return all;
}

std::unique_ptr<Wire> make(c10::Device device, BoundaryBuffers& way, bool sends) {
  return std::make_unique<NcclWire>(device, way, sends);
}

std::string new_name() {
  ncclUniqueId id;
  require(nccl().new_id(&id));
  return std::string(reinterpret_cast<const char*>(&id), sizeof id);
}

}  // namespace

const CudaWires millrace_cuda_wires = {gpus, make, new_name};

}  // namespace millrace::capture
