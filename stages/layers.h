// Layers that other layers are built of, and the files of layers. Only this folder includes it.
#pragma once

#include <memory>
#include <vector>

#include "stages/layer.h"

namespace millrace::stages {

/// Convolution with bias, square odd kernel, padding kernel/2. fan_in = in * kernel^2.
std::unique_ptr<Layer> make_conv(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                 std::int64_t stride);

/// Throws std::invalid_argument unless `groups` divides `channels`.
std::unique_ptr<Layer> make_group_norm(std::int64_t groups, std::int64_t channels);

// The types that each file of layers adds to layer_types().
std::vector<LayerType> learned_layers();
std::vector<LayerType> residual_layers();
std::vector<LayerType> simple_layers();

}  // namespace millrace::stages
