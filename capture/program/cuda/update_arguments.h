#pragma once

#include "capture/program/cuda/arguments.h"
#include "stages/update_numbers.h"

namespace millrace::gpu {

constexpr int kMostUpdateBlocks = 1024;
constexpr int kFormulaFloats = 16;  ///< of shared memory, for an optimizer's formula

/// Passed from launch to launch of an update.
struct UpdateNotes {
  double ways[kMostUpdateBlocks];  ///< distance that a block's weights moved
  int faults[kMostUpdateBlocks];   ///< of a block's gradients
  long long oldest;                ///< row of the oldest weights
  float steps;                     ///< including this one
};

/// As in check_and_update(); flat buffers of `count` floats.
struct UpdateArguments {
  stages::UpdateNumbers numbers;
  const float *from, *gradient;
  float* to;
  stages::UpdateState state;
  stages::CorrectionMemory memory;
  const double* rate;
  const bool* given;  ///< whether the gradient is finite, or null
  bool* finite;
  float* skipped;
  UpdateNotes* notes;
  int count, blocks;
};

}  // namespace millrace::gpu
