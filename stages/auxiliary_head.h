// A stage's own view of the target, so that it need not wait for the gradient of the network's
// loss.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "stages/loss.h"
#include "stages/optimizer.h"

namespace millrace::stages {

/// One convolution from what a stage gives to the target (a vector: the mean of its maps), sigmoid
/// (unless the loss is of scores), loss; of a network of changes: begun at zero, the change to the
/// frame that it is added to in the sigmoid's place; trained beside the stage and thrown away after
/// training. A stage that learns from its head alone learns from the sample it has just seen,
/// whatever the pipeline's length: decoupled greedy learning (Belilovsky et al., arXiv 1901.08164)
/// with one layer. Thread-bound.
class AuxiliaryHead {
 public:
  /// `channels`: what the stage gives; `target`: channels of the target. `optimizer`: the
  /// head's. `seed`: of its weights; none: zeros.
  AuxiliaryHead(std::int64_t channels, std::int64_t target, int kernel, const Loss& loss,
                const OptimizerSpec& optimizer, std::optional<std::uint64_t> seed,
                const at::TensorOptions& tensors);

  /// The loss of `activations` ([1,C,H,W], with their graph) against `target`, with its graph.
  /// `base`: the frame that they are the change to; undefined: they are none. Throws
  /// std::invalid_argument if their sizes differ.
  at::Tensor loss(const at::Tensor& activations, const at::Tensor& target,
                  const at::Tensor& base) const;
  /// Its parameters: leaves that require grad.
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  /// Adds gradients of the parameters to what update() will apply; `first` since the last update.
  void add(const std::vector<at::Tensor>& gradients, bool first);
  /// Applies the mean of `count` gradients.
  void update(int count);
  /// The same on the device alone, if `finite`. `rate` and `skipped` as in Stage::guarded_update().
  void guarded_update(int count, const at::Tensor& rate, at::Tensor& skipped,
                      const at::Tensor& finite);
  void set_rate(double factor) { optimizer_->set_rate(factor); }
  /// Parameters and optimizer state, to go on from later; they alias.
  NamedTensors state() const;
  std::int64_t bytes() const;

 private:
  std::int64_t padding_;
  const Loss& loss_;
  at::Tensor flat_, gradient_;
  std::vector<at::Tensor> parameters_, gradient_views_;
  OptimizerSpec spec_;
  std::optional<Optimizer> optimizer_;
};

}  // namespace millrace::stages
