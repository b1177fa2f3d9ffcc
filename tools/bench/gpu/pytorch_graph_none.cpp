#include <stdexcept>

#include "tools/bench/gpu/pytorch_graph.h"

namespace millrace::bench {

struct PytorchGraph::Captured {};

PytorchGraph::PytorchGraph(const std::function<void()>&) {
  throw std::invalid_argument("this build's LibTorch has no CUDA");
}

PytorchGraph::~PytorchGraph() = default;

void PytorchGraph::replay() {}

}  // namespace millrace::bench
