// From a frame's bytes to a sample's floats, on the device that needs them.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::stages {

/// Writes `bytes`, uint8 [H,W,C], to `sample`, float32 [1,C,H,W], value / 255: exact, each of the
/// 256 values is the float nearest to v / 255. Both contiguous and on one device; an undefined
/// `sample` is made there first. On the current stream, so that it may be recorded once `sample` is
/// there. Reentrant; no-grad mode.
void sample_of_bytes(const at::Tensor& bytes, at::Tensor& sample);

}  // namespace millrace::stages
