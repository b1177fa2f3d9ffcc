#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "stages/loss.h"
#include "stages/optimizer.h"

namespace millrace::stages {

/// A stage's auxiliary head, for decoupled greedy learning (Belilovsky et al., arXiv 1901.08164)
/// with one layer: a convolution from the stage's output to the target (a vector: the mean of its
/// maps), sigmoid (unless the loss is of scores), loss. In a network of changes it starts at zero,
/// and adding the frame replaces the sigmoid. Trained beside the stage and discarded after
/// training. A stage with no other loss learns from the sample it has just seen, at any length of
/// pipeline. Thread-bound.
class AuxiliaryHead {
 public:
  /// `channels`, `target`: of the stage's output and the target. `seed`: of weights; none: zeros.
  AuxiliaryHead(std::int64_t channels, std::int64_t target, int kernel, const Loss& loss,
                const OptimizerSpec& optimizer, std::optional<std::uint64_t> seed,
                const at::TensorOptions& tensors);

  /// The loss of `activations` ([1,C,H,W], with their graph) against `target`, with its graph.
  /// `base`: the frame that the output is a change to; undefined: it is no change. Throws
  /// std::invalid_argument if their sizes differ.
  at::Tensor loss(const at::Tensor& activations, const at::Tensor& target,
                  const at::Tensor& base) const;
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  /// [parameter]: the sums that update() will apply.
  const std::vector<at::Tensor>& gradients() const { return gradient_views_; }
  /// Applies the mean of `count` gradients, if `finite`. `rate` and `skipped`: see Stage::update().
  void update(int count, const at::Tensor& rate, at::Tensor& skipped, const at::Tensor& finite);
  /// Parameters and optimizer state, to resume from; aliases.
  NamedTensors state() const;
  std::int64_t bytes() const;

 private:
  std::int64_t padding_;
  const Loss& loss_;
  at::Tensor flat_, gradient_;
  std::vector<at::Tensor> parameters_, gradient_views_;
  std::optional<Optimizer> optimizer_;
};

}  // namespace millrace::stages
