// Functions of each element, of one or two operands, either of which may be spread over the other.
#pragma once

#include <cstddef>

#include "capture/program/kernels/team.h"

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
/// "silu gradient".
const char* name_of(Function function);

/// Where an operand lies: element k of row r at `r * row + k`, or, if not `each`, at `r * row`.
struct Operand {
  std::size_t row = 0;
  bool each = true;
};

/// made[r][k] = function(left[r][k], right[r][k]).
struct Map {
  Function function = Function::add;
  float numbers[3] = {};
  std::size_t rows = 1, row = 0;  ///< of the result, which has no gaps
  Operand left, right;
};

/// \param right null for a function of one. \param made may be either, if it lies alike.
void map(const Map& map, const float* left, const float* right, float* made, Share share = {});

}  // namespace millrace::kernels
