// Between the kernel, which nvcc compiles, and LibTorch, which it need not see.
#pragma once

#include <cuda_runtime_api.h>  // cudaStream_t

#include <cstdint>  // counts

#include "stages/update_numbers.h"

namespace millrace::stages {

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
