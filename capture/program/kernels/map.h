// Functions of each element, of one or two operands, either of which may be spread over the other.
#pragma once

#include <cstddef>

#include "capture/program/kernels/function.h"
#include "capture/program/kernels/team.h"

namespace millrace::kernels {

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
