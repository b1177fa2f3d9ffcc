// What the update's kernels are told.
#pragma once

#include "capture/program/cuda/arguments.h"
#include "stages/update_numbers.h"

namespace millrace::gpu {

constexpr int kMostUpdateBlocks = 1024;
constexpr int kFormulaFloats = 16;  ///< of shared memory, for an optimizer's formula

/// From launch to launch of an update.
struct UpdateNotes {
  double ways[kMostUpdateBlocks];  ///< that the weights of a block have gone
  int faults[kMostUpdateBlocks];   ///< of a block's gradients
  long long oldest;                ///< row of old weights
  float steps;                     ///< with this one
};

/// As check_and_update() has them; flat buffers of `count` floats.
struct UpdateArguments {
  stages::UpdateNumbers numbers;
  const float *from, *gradient;
  float* to;
  stages::UpdateState state;
  stages::CorrectionMemory memory;
  const double* rate;
  const bool* given;  ///< or null: whether the gradient is finite
  bool* finite;
  float* skipped;
  UpdateNotes* notes;
  int count, blocks;
};

}  // namespace millrace::gpu
