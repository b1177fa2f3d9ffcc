#include "capture/graph_cuda.h"

#include <c10/cuda/CUDAGuard.h>

#include <algorithm>

namespace millrace::capture {
namespace {

/// A chain of nodes under construction, some of them beside it (GraphNode::aside).
class Chain {
 public:
  Chain() {
    cudaGraph_t made = nullptr;
    MILLRACE_CHECK_CUDA(cudaGraphCreate(&made, 0));
    graph_.reset(made);
  }

  void wait(cudaEvent_t event) { add(cudaGraphAddEventWaitNode, event); }
  void record(cudaEvent_t event) { add(cudaGraphAddEventRecordNode, event); }
  void run(cudaGraph_t recording, bool aside) {
    std::vector<cudaGraphNode_t> before = before_;
    add(cudaGraphAddChildGraphNode, recording);
    if (!aside) return;
    asides_.push_back(before_.front());
    before_ = std::move(before);
  }
  /// Makes later nodes wait for the nodes aside.
  void join() { before_.insert(before_.end(), asides_.begin(), asides_.end()); }
  Own<cudaGraphExec_t> instantiate() const {
    cudaGraphExec_t made = nullptr;
    MILLRACE_CHECK_CUDA(cudaGraphInstantiate(&made, graph_.get(), 0));
    return Own<cudaGraphExec_t>(made);
  }

 private:
  template <class Add, class Content>
  void add(const Add& add_node, Content content) {
    cudaGraphNode_t node = nullptr;
    check_cuda(add_node(&node, graph_.get(), before_.data(), before_.size(), content),
               "a graph's node");
    before_ = {node};
  }
  OwnGraph graph_;
  std::vector<cudaGraphNode_t> before_;  ///< dependencies of the next node
  std::vector<cudaGraphNode_t> asides_;
};

}  // namespace

OwnStream new_stream(c10::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  cudaStream_t made = nullptr;
  MILLRACE_CHECK_CUDA(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
  return OwnStream(made);
}

CudaEvent::CudaEvent(unsigned flags) {
  cudaEvent_t made = nullptr;
  MILLRACE_CHECK_CUDA(cudaEventCreateWithFlags(&made, flags));
  event_.reset(made);
}

bool CudaEvent::over() const {
  const cudaError_t state = cudaEventQuery(get());
  if (state != cudaErrorNotReady) check_cuda(state, "cudaEventQuery");
  if (state == cudaSuccess) return true;
  cudaGetLastError();  // otherwise LibTorch's next launch check reports it
  return false;
}

Capturing::Capturing(cudaStream_t stream) : stream_(stream) {
  MILLRACE_CHECK_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
}

OwnGraph Capturing::end() {
  cudaGraph_t made = nullptr;
  const cudaError_t result = cudaStreamEndCapture(stream_, &made);
  OwnGraph graph(made);
  check_cuda(result, "cudaStreamEndCapture");
  ended_ = true;
  return graph;
}

Capturing::~Capturing() {
  if (ended_) return;
  cudaGraph_t broken = nullptr;
  cudaStreamEndCapture(stream_, &broken);
  if (broken) cudaGraphDestroy(broken);
  cudaGetLastError();  // already reported
}

CudaGraph::CudaGraph(const std::vector<GraphNode>& nodes, c10::Device device, cudaStream_t stream)
    : device_(device), stream_(stream) {
  const c10::cuda::CUDAGuard on_device(device_);
  done_ = std::make_unique<CudaEvent>(cudaEventDisableTiming);
  before_ = std::make_unique<CudaEvent>(cudaEventDefault);
  plain_ = built(nodes, false);
  timed_ = built(nodes, true);
}

Own<cudaGraphExec_t> CudaGraph::built(const std::vector<GraphNode>& nodes, bool timed) {
  Chain chain;
  // Recordings between two waits are timed together.
  bool timing = false;
  const auto mark = [&](bool begins) {
    if (!timed || timing == begins) return;
    marks_.push_back(std::make_unique<CudaEvent>(cudaEventDefault));
    chain.record(marks_.back()->get());
    timing = begins;
  };
  for (const GraphNode& node : nodes) {
    if (node.wait) {
      mark(false);
      chain.wait(static_cast<CudaEvent*>(node.wait)->get());
    }
    mark(true);
    chain.run(static_cast<const CudaRecording*>(node.recording)->get(), node.aside);
    if (node.signal) chain.record(static_cast<CudaEvent*>(node.signal)->get());
  }
  chain.join();
  mark(false);
  Own<cudaGraphExec_t> made = chain.instantiate();
  MILLRACE_CHECK_CUDA(cudaGraphUpload(made.get(), stream_));
  return made;
}

void CudaGraph::launch() {
  const c10::cuda::CUDAGuard on_device(device_);
  MILLRACE_CHECK_CUDA(cudaEventRecord(before_->get(), stream_));
  fresh_ = true;
  launch(timed_.get());
}

void CudaGraph::launch(cudaGraphExec_t graph) {
  const c10::cuda::CUDAGuard on_device(device_);
  MILLRACE_CHECK_CUDA(cudaGraphLaunch(graph, stream_));
  // Not an event of the graph: until the work gets there, CUDA doesn't say whether the host sees
  // this launch's state or the previous one's.
  MILLRACE_CHECK_CUDA(cudaEventRecord(done_->get(), stream_));
}

std::int64_t CudaGraph::duration_ns() {
  if (!std::exchange(fresh_, false)) return duration_ns_;
  const auto passed = [](const CudaEvent& from, const CudaEvent& to) {
    float ms = 0;
    MILLRACE_CHECK_CUDA(cudaEventElapsedTime(&ms, from.get(), to.get()));
    return double(ms);
  };
  double ms = 0;
  for (std::size_t i = 0; i + 1 < marks_.size(); i += 2) ms += passed(*marks_[i], *marks_[i + 1]);
  // A graph's first event may bear the time at which it was launched, behind the work before it.
  ms = std::min(ms, passed(*before_, *marks_.back()));
  return duration_ns_ = std::int64_t(1e6 * ms);
}

}  // namespace millrace::capture
