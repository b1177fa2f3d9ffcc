// Elementwise functions by name, for host and GPU kernels.
#pragma once

namespace millrace::kernels {

/// As LibTorch's operators, with parameters in its order. In gradients, left is the gradient of the
/// result; right is the input or, for relu, sigmoid, tanh and elu_result, the result.
enum class Function {
  add,
  subtract,
  multiply,
  divide,
  negate,
  absolute,
  sign,
  relu,
  relu_gradient,  ///< zero where right is at most 0; NaN passes it through
  sigmoid,
  sigmoid_gradient,
  tanh,
  tanh_gradient,
  silu,
  silu_gradient,
  gelu,
  gelu_gradient,
  gelu_tanh,  ///< GELU's tanh approximation
  gelu_tanh_gradient,
  hard_sigmoid,
  hard_sigmoid_gradient,
  hard_swish,
  hard_swish_gradient,
  clamp,  ///< minimum, maximum
  clamp_gradient,
  leaky_relu,  ///< slope
  leaky_relu_gradient,
  elu,  ///< alpha, scale, input scale
  elu_gradient,
  elu_result_gradient,
};

}  // namespace millrace::kernels
