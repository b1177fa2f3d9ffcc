// PyTorch's own CUDA Graph: what a recorded step is held against.
#pragma once

#include <functional>
#include <memory>

namespace millrace::bench {

/// at::cuda::CUDAGraph, as torch.cuda.graph() makes one. Bound to the current device and stream of
/// its making; replays go to the current stream.
class PytorchGraph {
 public:
  /// Captures `body`, which has been run there before. Throws std::invalid_argument in a build
  /// without CUDA.
  explicit PytorchGraph(const std::function<void()>& body);
  ~PytorchGraph();
  void replay();

 private:
  struct Captured;
  std::unique_ptr<Captured> captured_;
};

}  // namespace millrace::bench
