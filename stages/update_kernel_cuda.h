// Between the kernel, which nvcc compiles, and LibTorch, which it need not see.
#pragma once

#include <cuda_runtime_api.h>  // cudaStream_t

#include <cstdint>  // counts

#include "stages/update_rule.h"

namespace millrace::stages {

/// What is the same at every update.
struct UpdateNumbers {
  UpdateRule rule = UpdateRule::sgd;
  double share = 1;  ///< 1 / the gradients summed
  double lr = 0, momentum = 0, weight_decay = 0, beta1 = 0, beta2 = 0, alpha = 0, eps = 0;
  /// sgd with momentum: w -= lr (spike_momentum m + spike_gradient g).
  double spike_momentum = 1, spike_gradient = 0;
  bool decoupled = false;  ///< adamw
};

/// On the device; `count` floats each.
struct UpdatePointers {
  std::int64_t count = 0;
  const float* from = nullptr;
  float* to = nullptr;
  const float* gradient = nullptr;
  float* first = nullptr;   ///< momentum, or adam's mean; null where the rule has none
  float* second = nullptr;  ///< running mean of squares
  float* steps = nullptr;   ///< adam: one number
  const double* rate = nullptr;
  const bool* finite = nullptr;
};

/// On stream `on` of the current device; returns at once.
void launch_update(UpdateNumbers numbers, UpdatePointers pointers, cudaStream_t on);

}  // namespace millrace::stages
