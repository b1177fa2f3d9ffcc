// Functions of each row of a matrix [rows][row]: layer norm, softmax. A team shares the rows.
#pragma once

#include <cstddef>

#include "capture/program/kernels/norm.h"

namespace millrace::kernels {

struct Matrix {
  std::size_t rows = 0, row = 0;
};

/// destination = (source - mean) * rstd * weight + bias, with weight and bias [row] and a mean and
/// rstd a row. Operands as a group norm's, without scratch.
void layer_norm(const Matrix& matrix, double eps, const GroupNormOperands& operands, Share share);
/// A team shares the rows, and for the gradients of weight and bias their elements.
void layer_norm_gradient(const Matrix& matrix, const GroupNormOperands& operands, Share share);

/// made = exp(source) over its row's sum, or the logarithm of that.
void softmax(const Matrix& matrix, bool logarithm, const float* source, float* made, Share share);
/// \param made by softmax().
void softmax_gradient(const Matrix& matrix, bool logarithm, const float* gradient,
                      const float* made, float* destination, Share share);

}  // namespace millrace::kernels
