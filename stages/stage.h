// A stage: consecutive modules with their weights, and what they compute for one sample.
#pragma once

#include <ATen/core/Tensor.h>  // at::Tensor

#include <memory>  // shared network, optimizer

#include "stages/network.h"
#include "stages/optimizer.h"
#include "stages/parameters.h"

namespace millrace::stages {

/// What a stage keeps of one sample from forward to backward.
struct Activations {
  at::Tensor input;   ///< a leaf; requires grad unless the stage is the first
  at::Tensor output;  ///< with its autograd graph
  at::Tensor loss;    ///< last stage only: scalar, with its graph
  int buffer = 0;     ///< which of the stage's weight buffers the forward read
};

/// Where a stage lies in the network.
struct StageRange {
  int begin = 0;  ///< first module
  int end = 0;    ///< one past the last
  bool first = true;
  bool last = true;
};

constexpr std::int64_t kNewest = -1;

/// Forward, backward and update of modules [begin, end). Keeps the latest `versions` versions of
/// its weights; version n is what n updates made. With one version an update is in place, and a
/// backward sees whatever the weights have become since its forward; with more, an update writes
/// the buffer of the oldest, and a backward sees the weights of its own forward. Knows nothing
/// of threads, links, steps or frames. Thread-bound.
class Stage {
 public:
  Stage(std::shared_ptr<const Network> network, StageRange range, const OptimizerSpec& optimizer,
        const at::TensorOptions& options, int versions = 1);

  /// Runs the modules at `version` of the weights, which must be kept. `input`: [1,C,H,W].
  /// Throws std::logic_error for a version that is not kept.
  Activations forward(const at::Tensor& input, std::int64_t version = kNewest) const;
  /// The same for the last stage, and the loss against `target`: mean squared error over all
  /// elements.
  Activations forward(const at::Tensor& input, const at::Tensor& target,
                      std::int64_t version = kNewest) const;

  /// Backpropagates `output_gradient` (the last stage: the loss; pass an undefined tensor) through
  /// `activations`, which are used up; adds the weights' gradient to what update() will apply.
  /// Returns the input's gradient, undefined for the first stage.
  at::Tensor backward(Activations& activations, const at::Tensor& output_gradient);

  /// Applies the mean of the gradients added since the last update, and forgets them.
  void update();
  /// Forgets the gradients added since the last update.
  void discard_gradients() { accumulated_ = 0; }

  /// Copies of the weights under their names and of the optimizer's state under
  /// "optimizer.NAME.PARAMETER", so that a checkpoint outlives a change of the cut.
  StateDict checkpoint() const;
  /// Takes weights, and optimizer state where `state` holds some, from what checkpoint() gave.
  /// Throws std::invalid_argument for weights that are missing or of another shape.
  void restore(const StateDict& state);

  /// The newest version.
  Parameters& parameters() { return versions_[buffer_of(newest_)]; }
  const Parameters& parameters() const { return versions_[buffer_of(newest_)]; }
  const StageRange& range() const { return range_; }

 private:
  int buffer_of(std::int64_t version) const {
    return int(version % std::int64_t(versions_.size()));
  }

  std::shared_ptr<const Network> network_;
  StageRange range_;
  std::vector<std::size_t> parameter_counts_;  ///< a module
  std::vector<Parameters> versions_;           ///< version n in buffer n mod their number
  std::int64_t newest_ = 0;
  std::unique_ptr<Optimizer> optimizer_;
  at::Tensor gradient_;  ///< flat, laid out as the weights
  std::vector<at::Tensor> gradient_views_;
  int accumulated_ = 0;  ///< backwards since the last update
};

}  // namespace millrace::stages
