// Layers that other layers are built of. Only this folder includes it.
#pragma once

#include <memory>

#include "stages/layer.h"

namespace millrace::stages {

/// Convolution with bias, square odd kernel, padding kernel/2. fan_in = in * kernel^2.
std::unique_ptr<Layer> make_conv(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                 std::int64_t stride);

/// Adds latest_frame() of the sample, which it joins, to its input.
std::unique_ptr<Layer> make_change(std::int64_t channels);
/// The last `channels` channels of a sample.
at::Tensor latest_frame(const at::Tensor& sample, std::int64_t channels);

/// Throws std::invalid_argument unless `groups` divides `channels`.
std::unique_ptr<Layer> make_group_norm(std::int64_t groups, std::int64_t channels);

}  // namespace millrace::stages
