#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::stages {

/// Converts `bytes`, uint8 [H,W,C], to `sample`, float32 [1,C,H,W], value / 255: exactly the
/// nearest float. Both contiguous and on one device; an undefined `sample` is allocated there. On
/// the current stream, so it can be recorded once `sample` exists. Reentrant; no-grad mode.
void sample_of_bytes(const at::Tensor& bytes, at::Tensor& sample);

}  // namespace millrace::stages
