#include <stdexcept>

#include "tools/gpu/pytorch_graph.h"

namespace millrace::tools {

struct PytorchGraph::Captured {};

PytorchGraph::PytorchGraph(const std::function<void()>&) {
  throw std::invalid_argument("this build's LibTorch has no CUDA");
}

PytorchGraph::~PytorchGraph() = default;

void PytorchGraph::replay() {}

}  // namespace millrace::tools
