// Copies between any two places, as an operator, so that step programs record them.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::capture {

/// From and to the host (pinned), this device or a peer, on the current stream. One call for every
/// kind of copy; LibTorch's own brings in the other device's stream.
void copy_bytes(const at::Tensor& to, const at::Tensor& from);

}  // namespace millrace::capture
