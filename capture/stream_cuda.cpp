// Pieces as captured CUDA Graphs, assembled as child graphs with event nodes between them.
#include <ATen/ATen.h>                   // pinned tensors
#include <ATen/cuda/CUDAGraph.h>         // capture with a pool of its own
#include <ATen/cuda/PeerToPeerAccess.h>  // peers
#include <c10/core/AutogradState.h>      // backward on the thread that captures
#include <c10/cuda/CUDAGuard.h>          // current device and stream
#include <cuda_runtime_api.h>            // graphs, events
#include <map>                           // pools
#include <memory>                        // streams
#include <stdexcept>                     // std::runtime_error

#include "capture/own_stream_cuda.h"
#include "capture/partition_cuda.h"
#include "capture/recorder.h"
#include "capture/stream.h"

namespace millrace::capture {
namespace {

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(unsigned flags) { C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, flags)); }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  bool over() const {
    const cudaError_t state = cudaEventQuery(event_);
    if (state != cudaErrorNotReady) C10_CUDA_CHECK(state);
    return state == cudaSuccess;
  }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaPiece final : public Piece {
 public:
  CudaPiece() : graph_(/*keep_graph=*/true) {}
  at::cuda::CUDAGraph& graph() { return graph_; }
  cudaGraph_t raw() const { return const_cast<at::cuda::CUDAGraph&>(graph_).raw_cuda_graph(); }

 private:
  at::cuda::CUDAGraph graph_;
};

/// A chain of nodes under construction.
class Chain {
 public:
  Chain() { C10_CUDA_CHECK(cudaGraphCreate(&graph_, 0)); }
  ~Chain() { cudaGraphDestroy(graph_); }
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  void wait(cudaEvent_t event) {
    add([&](cudaGraphNode_t* node, const cudaGraphNode_t* before, std::size_t count) {
      return cudaGraphAddEventWaitNode(node, graph_, before, count, event);
    });
  }
  void record(cudaEvent_t event) {
    add([&](cudaGraphNode_t* node, const cudaGraphNode_t* before, std::size_t count) {
      return cudaGraphAddEventRecordNode(node, graph_, before, count, event);
    });
  }
  void run(cudaGraph_t piece) {
    add([&](cudaGraphNode_t* node, const cudaGraphNode_t* before, std::size_t count) {
      return cudaGraphAddChildGraphNode(node, graph_, before, count, piece);
    });
  }
  cudaGraphExec_t instantiate() const {
    cudaGraphExec_t made = nullptr;
    C10_CUDA_CHECK(cudaGraphInstantiate(&made, graph_, 0));
    return made;
  }

 private:
  template <class Add>
  void add(const Add& add_node) {
    cudaGraphNode_t node = nullptr;
    C10_CUDA_CHECK(add_node(&node, last_ ? &last_ : nullptr, last_ ? 1u : 0u));
    last_ = node;
  }
  cudaGraph_t graph_ = nullptr;
  cudaGraphNode_t last_ = nullptr;
};

class CudaGraph final : public Graph {
 public:
  CudaGraph(const std::vector<Part>& parts, c10::Device device, cudaStream_t stream)
      : device_(device), stream_(stream) {
    const c10::cuda::CUDAGuard on_device(device_);
    Chain chain;
    // Between two waits the pieces are timed as one.
    bool timing = false;
    const auto mark = [&](bool begins) {
      if (timing == begins) return;
      marks_.push_back(std::make_unique<CudaEvent>(cudaEventDefault));
      chain.record(marks_.back()->get());
      timing = begins;
    };
    for (const Part& part : parts) {
      if (part.wait) {
        mark(false);
        chain.wait(static_cast<CudaEvent*>(part.wait)->get());
      }
      mark(true);
      chain.run(static_cast<const CudaPiece*>(part.piece)->raw());
      if (part.signal) chain.record(static_cast<CudaEvent*>(part.signal)->get());
    }
    mark(false);
    graph_ = chain.instantiate();
    done_ = std::make_unique<CudaEvent>(cudaEventDisableTiming);
    C10_CUDA_CHECK(cudaGraphUpload(graph_, stream_));
  }
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }

  void launch() override {
    const c10::cuda::CUDAGuard on_device(device_);
    C10_CUDA_CHECK(cudaGraphLaunch(graph_, stream_));
    // Not one of the graph's own events: what the host sees of those before the work gets there,
    // this launch's or still the one before, CUDA does not say.
    C10_CUDA_CHECK(cudaEventRecord(done_->get(), stream_));
  }
  bool over() override { return done_->over(); }
  std::int64_t duration_ns() override {
    double ms = 0;
    for (std::size_t i = 0; i + 1 < marks_.size(); i += 2) {
      float passed = 0;
      C10_CUDA_CHECK(cudaEventElapsedTime(&passed, marks_[i]->get(), marks_[i + 1]->get()));
      ms += passed;
    }
    return std::int64_t(1e6 * ms);
  }

 private:
  c10::Device device_;
  cudaStream_t stream_;
  cudaGraphExec_t graph_ = nullptr;
  std::unique_ptr<CudaEvent> done_;
  std::vector<std::unique_ptr<CudaEvent>> marks_;  ///< begin, end, begin, end, ...
};

/// A pool of captures' memory. Held here, since LibTorch takes none again whose captures are all
/// gone, as after a trial or a capture that failed.
class Pool {
 public:
  explicit Pool(c10::Device device) : device_(device.index()), id_(at::cuda::graph_pool_handle()) {
    c10::cuda::CUDACachingAllocator::createOrIncrefPool(device_, id_);
  }
  ~Pool() { c10::cuda::CUDACachingAllocator::releasePool(device_, id_); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  at::cuda::MempoolId_t id() const { return id_; }

 private:
  c10::DeviceIndex device_;
  at::cuda::MempoolId_t id_;
};

class CudaStream final : public Stream {
 public:
  /// `stream`: with whatever must live as long.
  CudaStream(c10::Device device, std::shared_ptr<CUstream_st> stream)
      : device_(device),
        own_(std::move(stream)),
        stream_(c10::cuda::getStreamFromExternal(own_.get(), device.index())) {}

  std::unique_ptr<Event> make_event() override {
    const c10::cuda::CUDAGuard on_device(device_);
    return std::make_unique<CudaEvent>(cudaEventDisableTiming);
  }

  std::unique_ptr<Piece> record(int pool, std::function<void()> body) override {
    within([&] {
      // What the body reads may have been made on another stream, by whoever set it up.
      C10_CUDA_CHECK(cudaDeviceSynchronize());
      body();  // libraries load their kernels and choose among them
    });
    stream_.synchronize();
    auto piece = std::make_unique<CudaPiece>();
    const at::cuda::MempoolId_t memory = pools_.try_emplace(pool, device_).first->second.id();
    within([&] {
      piece->graph().capture_begin(memory, cudaStreamCaptureModeThreadLocal);
      try {
        body();
      } catch (const std::exception& error) {
        abandon(memory);
        throw std::runtime_error(error.what());
      }
      piece->graph().capture_end();
    });
    return piece;
  }

  std::unique_ptr<Graph> assemble(const std::vector<Part>& parts) override {
    return std::make_unique<CudaGraph>(parts, device_, own_.get());
  }
  void run(std::function<void()> body) override { within(body); }
  void copy(at::Tensor& to, const at::Tensor& from) override {
    // One call for every kind of copy; LibTorch's own brings in the other device's stream.
    C10_CUDA_CHECK(cudaMemcpyAsync(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes(),
                                   cudaMemcpyDefault, own_.get()));
  }
  void synchronize() override { stream_.synchronize(); }

 private:
  template <class Body>
  void within(const Body& body) {
    const c10::cuda::CUDAStreamGuard on_stream(stream_);
    // A backward's kernels must come from this thread, which captures.
    c10::AutogradState& autograd = c10::AutogradState::get_tls_state();
    const bool threads = autograd.get_multithreading_enabled();
    autograd.set_multithreading_enabled(false);
    try {
      body();
    } catch (...) {
      autograd.set_multithreading_enabled(threads);
      throw;
    }
    autograd.set_multithreading_enabled(threads);
  }

  /// Ends a capture that failed, so that the stream can be used again.
  void abandon(at::cuda::MempoolId_t pool) {
    cudaGraph_t broken = nullptr;
    cudaStreamEndCapture(own_.get(), &broken);
    if (broken) cudaGraphDestroy(broken);
    cudaGetLastError();
    c10::cuda::CUDACachingAllocator::endAllocateToPool(device_.index(), pool);
    c10::cuda::CUDACachingAllocator::releasePool(device_.index(), pool);
  }

  c10::Device device_;
  std::shared_ptr<CUstream_st> own_;
  c10::cuda::CUDAStream stream_;
  std::map<int, Pool> pools_;
};

void require_cuda(c10::Device device) {
  if (!device.is_cuda()) throw std::invalid_argument(device.str() + " runs steps as they are");
}

}  // namespace

std::unique_ptr<Stream> make_stream(c10::Device device) {
  require_cuda(device);
  const auto own = std::make_shared<OwnStream>(device);
  return std::make_unique<CudaStream>(device, std::shared_ptr<CUstream_st>(own, own->get()));
}

namespace {

/// Graphs and events in a green context are the driver's to refuse: now, not at the first frame.
void try_out(Stream& stream, c10::Device device) {
  at::Tensor number = at::zeros({1}, at::TensorOptions(device));
  const auto piece = stream.record(0, [&] { number.add_(1); });
  const auto event = stream.make_event();
  const auto graph =
      stream.assemble({{.piece = piece.get(), .wait = nullptr, .signal = event.get()}});
  graph->launch();
  stream.synchronize();
}

}  // namespace

std::vector<std::unique_ptr<Stream>> make_streams(c10::Device device,
                                                  const std::vector<double>& work) {
  require_cuda(device);
  const auto partition = std::make_shared<Partition>(device, work);
  std::vector<std::unique_ptr<Stream>> streams;
  for (std::size_t i = 0; i < work.size(); ++i) {
    streams.push_back(std::make_unique<CudaStream>(
        device, std::shared_ptr<CUstream_st>(partition, partition->stream(i))));
    try_out(*streams.back(), device);
  }
  return streams;
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
