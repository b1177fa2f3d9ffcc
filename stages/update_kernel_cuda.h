// Between the kernel, which nvcc compiles, and LibTorch, which it need not see.
#pragma once

#include <cuda_runtime_api.h>

#include "stages/update_numbers.h"

namespace millrace::stages {

/// On the device; `count` floats each.
struct UpdatePointers {
  std::int64_t count = 0;
  const float* from = nullptr;
  float* to = nullptr;
  const float* gradient = nullptr;
  UpdateState state;
  const double* rate = nullptr;
  const bool* finite = nullptr;
};

/// On stream `on` of the current device; returns at once.
void launch_update(UpdateNumbers numbers, UpdatePointers pointers, cudaStream_t on);

}  // namespace millrace::stages
