// Convolutions of each channel by itself: forward and both gradients. Images as in kernels.h.
#pragma once

#include "capture/program/kernels/kernels.h"

namespace millrace::kernels {

constexpr int kLargestDepthwise = 11;  ///< kernel: a block's weights are on the stack

/// As `convolution`, whose input and output have the same channels, halo 0 and no activation;
/// Operands are those of its pass, weights in PyTorch's order [channels, 1, kernel, kernel]. Rows
/// are summed in float, one after another. A team shares the channels.
void depthwise(const Convolution& convolution, const Operands& operands, Share share);

}  // namespace millrace::kernels
