// Functions of an element, by name: read by a host's kernels and by a GPU's.
#pragma once

namespace millrace::kernels {

/// As LibTorch's operators have them, with their numbers in its order. A gradient is that by what
/// the function was given: left is the gradient by its result, right what the function was given
/// or, for relu, sigmoid, tanh and elu_result, what it made.
enum class Function {
  add,
  subtract,
  multiply,
  divide,
  negate,
  absolute,
  sign,
  relu,
  relu_gradient,  ///< zero where right is at most 0; a NaN there lets it through
  sigmoid,
  sigmoid_gradient,
  tanh,
  tanh_gradient,
  silu,
  silu_gradient,
  gelu,
  gelu_gradient,
  gelu_tanh,  ///< GELU's approximation by tanh
  gelu_tanh_gradient,
  hard_sigmoid,
  hard_sigmoid_gradient,
  hard_swish,
  hard_swish_gradient,
  clamp,  ///< least, most
  clamp_gradient,
  leaky_relu,  ///< slope
  leaky_relu_gradient,
  elu,  ///< alpha, scale, input scale
  elu_gradient,
  elu_result_gradient,
};

}  // namespace millrace::kernels
