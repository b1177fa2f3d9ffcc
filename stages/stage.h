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
};

/// Where a stage lies in the network.
struct StageRange {
  int begin = 0;  ///< first module
  int end = 0;    ///< one past the last
  bool first = true;
  bool last = true;
};

/// Forward, backward and update of modules [begin, end) with one version of weights. Knows nothing
/// of threads, links, steps or frames. Thread-bound.
class Stage {
 public:
  Stage(std::shared_ptr<const Network> network, StageRange range, const OptimizerSpec& optimizer,
        const at::TensorOptions& options);

  /// Runs the modules at the current weights. `input`: [1,C,H,W].
  Activations forward(const at::Tensor& input) const;
  /// The same for the last stage, and the loss against `target`: mean squared error over all elements.
  Activations forward(const at::Tensor& input, const at::Tensor& target) const;

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

  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }
  const StageRange& range() const { return range_; }

 private:
  std::shared_ptr<const Network> network_;
  StageRange range_;
  std::vector<std::size_t> parameter_counts_;  ///< a module
  Parameters parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  at::Tensor gradient_;                    ///< flat, laid out as the weights
  std::vector<at::Tensor> gradient_views_;
  int accumulated_ = 0;                    ///< backwards since the last update
};

}  // namespace millrace::stages
