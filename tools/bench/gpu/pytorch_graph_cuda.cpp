#include <ATen/cuda/CUDAGraph.h>

#include "tools/bench/gpu/pytorch_graph.h"

namespace millrace::bench {

struct PytorchGraph::Captured {
  at::cuda::CUDAGraph graph;
};

PytorchGraph::PytorchGraph(const std::function<void()>& body)
    : captured_(std::make_unique<Captured>()) {
  captured_->graph.capture_begin();
  body();
  captured_->graph.capture_end();
}

PytorchGraph::~PytorchGraph() = default;

void PytorchGraph::replay() {
  captured_->graph.replay();
}

}  // namespace millrace::bench
