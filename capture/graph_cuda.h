#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "capture/backend.h"
#include "capture/check_cuda.h"

namespace millrace::capture {

/// Warns of a failure and clears it, so that the next launch isn't blamed.
struct Destroy {
  void operator()(cudaEvent_t event) const { C10_CUDA_CHECK_WARN(cudaEventDestroy(event)); }
  void operator()(cudaStream_t stream) const { C10_CUDA_CHECK_WARN(cudaStreamDestroy(stream)); }
  void operator()(cudaGraph_t graph) const { C10_CUDA_CHECK_WARN(cudaGraphDestroy(graph)); }
  void operator()(cudaGraphExec_t graph) const { C10_CUDA_CHECK_WARN(cudaGraphExecDestroy(graph)); }
};
template <class Handle>
using Own = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy>;
using OwnStream = Own<cudaStream_t>;
using OwnGraph = Own<cudaGraph_t>;

// Backends: see make_eager_backend(), make_graph_backend().
std::unique_ptr<Backend> make_eager_stream(c10::Device device);
std::unique_ptr<Backend> make_stream(c10::Device device, Lowering lowering = {});

/// For one stage: PyTorch's stream pool wraps round and aliases.
OwnStream new_stream(c10::Device device);

class CudaEvent final : public Event {
 public:
  /// Created on the current device.
  explicit CudaEvent(unsigned flags);
  bool over() const;
  cudaEvent_t get() const { return event_.get(); }

 private:
  Own<cudaEvent_t> event_;
};

/// Captures all that the calling thread gives a stream. Without end(), the capture is discarded.
class Capturing {
 public:
  explicit Capturing(cudaStream_t stream);
  ~Capturing();
  Capturing(const Capturing&) = delete;
  Capturing& operator=(const Capturing&) = delete;
  OwnGraph end();

 private:
  cudaStream_t stream_;
  bool ended_ = false;
};

class CudaRecording final : public Recording {
 public:
  /// \param lowered the body whose launches it holds; empty: LibTorch's operators.
  explicit CudaRecording(OwnGraph graph, LoweredBody lowered = {})
      : graph_(std::move(graph)), memory_(std::move(lowered.run)) {
    operations = std::move(lowered.operations);
  }
  cudaGraph_t get() const { return graph_.get(); }

 private:
  OwnGraph graph_;
  std::function<void()> memory_;  ///< owns the graph's
};

/// Recordings as child graphs in sequence, with event nodes between them.
class CudaGraph final : public Graph {
 public:
  /// Launched on `stream`, which outlives it.
  CudaGraph(const std::vector<GraphNode>& nodes, c10::Device device, cudaStream_t stream);

  void launch() override;
  void launch_untimed() override { launch(plain_.get()); }
  bool over() override { return done_->over(); }
  std::int64_t duration_ns() override;

 private:
  Own<cudaGraphExec_t> built(const std::vector<GraphNode>& nodes, bool timed);
  void launch(cudaGraphExec_t graph);

  c10::Device device_;
  cudaStream_t stream_;
  std::unique_ptr<CudaEvent> done_;
  std::unique_ptr<CudaEvent> before_;  ///< the work before the latest timed launch is over
  std::vector<std::unique_ptr<CudaEvent>> marks_;  ///< begin, end, begin, end, ...
  Own<cudaGraphExec_t> plain_, timed_;
  std::int64_t duration_ns_ = 0;
  bool fresh_ = false;  ///< whether a launch was timed since duration_ns_
};

}  // namespace millrace::capture
