// What an update kernel is told, on a core or a CUDA device. For nvcc, too, which need not see
// LibTorch.
#pragma once

#include "stages/update_rule.h"

namespace millrace::stages {

/// What is the same at every update.
struct UpdateNumbers {
  UpdateRule rule = UpdateRule::sgd;
  double share = 1;  ///< 1 / the gradients summed
  double lr = 0, momentum = 0, weight_decay = 0, beta1 = 0, beta2 = 0, alpha = 0, eps = 0;
  /// sgd with momentum: w -= lr (spike_momentum m + spike_gradient g).
  double spike_momentum = 1, spike_gradient = 0;
  bool decoupled = false;  ///< weight decay goes to the weights, not to the gradient
};

/// The optimizer's state; null where the rule has none.
struct UpdateState {
  float* first = nullptr;   ///< momentum, or adam's mean
  float* second = nullptr;  ///< running mean of squares
  float* steps = nullptr;   ///< adam: one number
};

}  // namespace millrace::stages
