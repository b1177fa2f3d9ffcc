// The tensors that stages share, by slot.
#pragma once

#include <ATen/core/Tensor.h>  // at::Tensor

#include <vector>  // slots

namespace millrace::capture {

/// Input and target of the samples in flight, [slot]: float32 [1,C,H,W] at fixed addresses. Written
/// by the feed (stage 0's worker), read by the first and the last stage, which leaves its
/// prediction beside them.
struct SampleBuffers {
  /// `target_shape` empty: the target is the input itself, one buffer for both.
  SampleBuffers(int slots, at::IntArrayRef shape, at::IntArrayRef target_shape);
  std::vector<at::Tensor> input;
  std::vector<at::Tensor> target;
  std::vector<at::Tensor> prediction;
};

/// Between stage i and i+1, [slot]: activations written upstream, their gradients written
/// downstream; several where skip connections cross the cut too. Whoever receives the slot's token
/// may read.
struct BoundaryBuffers {
  explicit BoundaryBuffers(int slots) : activations(slots), gradients(slots) {}
  std::vector<std::vector<at::Tensor>> activations;
  std::vector<std::vector<at::Tensor>> gradients;
};

}  // namespace millrace::capture
