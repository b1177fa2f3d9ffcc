// Orthogonal gradients.
#pragma once

#include <ATen/core/Tensor.h>

namespace millrace::stages {

/// Orthogonal gradients, Han et al., arXiv 2504.01961: takes from each tensor's part g of
/// `gradient`, a sum of `count`, its projection on the same part c of `mean`,
///   g <- g - (g.c / c.c) c,
/// and then makes c <- decay c + (1 - decay) g / count, with g as it came. The paper writes g and
/// c for a network as a whole, and its authors have published no code. Here each tensor is
/// projected by itself, as the optimizers go through parameters, so that the cut does not change
/// the rule. A gradient that is not finite leaves `mean` as it is; one whose products overflow, or
/// that meets a mean of 0, stays whole. Both are flat, float, of one layout and device; `places`:
/// Parameters::places(). One call of the operator millrace::orthogonalize, made of LibTorch's
/// operators, none of which asks the host, so that it may be recorded. Reentrant; no-grad mode.
void orthogonalize(at::Tensor& gradient, at::Tensor& mean, at::IntArrayRef places, double decay,
                   int count);

}  // namespace millrace::stages
