// The kernels of this folder's own. Internal to it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "capture/program/kernels/kernels.h"

namespace millrace::kernels {

std::vector<std::string> own_correlations(const Convolution& convolution);
std::unique_ptr<Kernel> own_correlation(const Convolution& convolution, const std::string& name);

std::vector<std::string> own_weight_gradients(const Convolution& convolution);
std::unique_ptr<Kernel> own_weight_gradient(const Convolution& convolution,
                                            const std::string& name);

/// `layout` with as much halo as the convolution reads.
Layout padded(const Layout& layout, int kernel);
/// Copies the image into a buffer of padded(): halo zeroed. Returns the address of pixel (0, 0).
const float* copy_padded(const float* source, const Layout& from, int kernel, float* buffer);

}  // namespace millrace::kernels
