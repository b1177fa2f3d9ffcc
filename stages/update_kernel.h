// Where a build has nvcc: the whole guarded update as one kernel.
#pragma once

#include "stages/guarded_update.h"

namespace millrace::stages {

/// As guarded_update(), for buffers on a CUDA device, on the current stream. False, and nothing is
/// done, in a build without nvcc. LibTorch's fused optimizers know neither rmsprop nor spike
/// compensation nor weights that go to another buffer, and make two launches of a step.
bool update_kernel(const UpdateNumbers& n, const UpdateBuffers& buffers, const at::Tensor& rate,
                   const at::Tensor& finite);

}  // namespace millrace::stages
