#pragma once

#include "capture/program/operation.h"

namespace millrace::program {

/// Operands and results by pass: {x, w[, bias]} -> {y}, with an activation; {dy, w[, mask]} ->
/// {dx}; {dy, x} -> {dw, db}, either of which may be undefined; {dy, w, x[, mask]} -> {dx, dw, db}.
struct Convolve {
  kernels::Convolution convolution;
  /// Not null if nothing else in the program reads or writes the weight gradient.
  LateGradients* late = nullptr;
  /// On a GPU: the weights are ready before the program runs.
  bool weights_early = false;
  /// On a GPU: the convolutions whose weight gradients it makes, operands and results in order.
  std::vector<kernels::Convolution> group = {};
};
Operation convolution_of(const kernels::Convolution& convolution);
std::unique_ptr<Prepared> gpu_convolution(const Node& node);

/// "forward 16x64x64 -> 16x64x64 k5 s1 relu".
std::string describe(const kernels::Convolution& convolution);

/// A Convolve*, const for a const node; null for other operations.
inline auto* as_convolution(auto& node) {
  return std::any_cast<Convolve>(&node.operation.attributes);
}
/// Null for any other pass.
inline Convolve* as_pass(Node& node, kernels::Pass pass) {
  Convolve* const found = as_convolution(node);
  return found && found->convolution.pass == pass ? found : nullptr;
}

/// The kernels that can run a convolution, or its weight gradient alone, on the current device, the
/// one chosen by shape first, and the task for gpu::choose().
struct KernelChoice {
  std::string task;
  std::vector<std::string> names;
};
KernelChoice kernel_choice(const kernels::Convolution& convolution);

}  // namespace millrace::program
