// Layers that other layers are built of. Only files of this folder include it.
#pragma once

#include <memory>  // std::unique_ptr<Layer>

#include "stages/layer.h"

namespace millrace::stages {

/// Convolution with bias, square odd kernel, padding kernel/2. fan_in = in * kernel^2.
std::unique_ptr<Layer> make_conv(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                 std::int64_t stride);

/// Throws std::invalid_argument unless `groups` divides `channels`.
std::unique_ptr<Layer> make_group_norm(std::int64_t groups, std::int64_t channels);

/// ResNet's basic block (two 3x3 convolutions) or bottleneck (1x1, 3x3, 1x1, output 4 * `width`),
/// He et al., arXiv 1512.03385, with GroupNorm (Wu and He, arXiv 1803.08494) where they have
/// BatchNorm: a sample is one frame, and a batch of one has no batch statistics worth the name.
/// `shape` moves on to the output.
std::unique_ptr<Layer> make_residual_block(bool bottleneck, std::int64_t width, std::int64_t stride,
                                           ImageShape& shape);

}  // namespace millrace::stages
