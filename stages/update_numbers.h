// What an update kernel is told, on a core or a CUDA device. For nvcc, too, which need not see
// LibTorch.
#pragma once

#include <cstdint>  // ages

#include "stages/update_rule.h"

namespace millrace::stages {

/// What a correction's formulas are told; those of update_kernel_cuda.cu know none.
struct CorrectionNumbers {
  CorrectionRule rule = CorrectionRule::none;
  std::int64_t updates = 0;  ///< how old gradients are
  double decay = 0;          ///< discrepancy: what an update leaves of a change
  double lambda = 0;         ///< dc-asgd
};

/// What is the same at every update.
struct UpdateNumbers {
  UpdateRule rule = UpdateRule::sgd;
  double share = 1;  ///< 1 / the gradients summed
  double lr = 0, momentum = 0, weight_decay = 0, beta1 = 0, beta2 = 0, alpha = 0, eps = 0;
  /// sgd with momentum: w -= lr (spike_momentum m + spike_gradient g).
  double spike_momentum = 1, spike_gradient = 0;
  bool decoupled = false;  ///< weight decay goes to the weights, not to the gradient
  CorrectionNumbers correction;
};

/// The optimizer's state; null where the rule has none.
struct UpdateState {
  float* first = nullptr;   ///< momentum, or adam's mean
  float* second = nullptr;  ///< running mean of squares
  float* steps = nullptr;   ///< adam: one number
};

/// What the correction remembers, in the order of correction.cpp; null where the rule has none.
struct CorrectionMemory {
  float* shift = nullptr;          ///< added to the weights by passes
  float* change = nullptr;         ///< running mean of the weights' change
  float* old = nullptr;            ///< ring of updates + 1 rows of weights
  std::int64_t* newest = nullptr;  ///< a row of it
  float* square = nullptr;         ///< running mean of squared gradients
  float* step = nullptr;           ///< one number: running mean of a weight's way
  bool* stepped = nullptr;         ///< whether there is one
};

}  // namespace millrace::stages
