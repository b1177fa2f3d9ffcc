// Where a build has nvcc: a frame's bytes to a sample's floats as one kernel.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::stages {

/// As sample_of_bytes(), for tensors on a CUDA device that are there. False, and nothing is done,
/// in a build without nvcc. LibTorch has no such kernel: its operators write the floats, then read
/// and write them again.
bool sample_kernel(const at::Tensor& bytes, at::Tensor& sample);

}  // namespace millrace::stages
