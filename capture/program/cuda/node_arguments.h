// Arguments of the kernels for nodes other than convolutions.
#pragma once

#include "capture/program/cuda/arguments.h"

namespace millrace::gpu {

constexpr int kMostDimensions = 5;

/// An operand broadcast to the result, or one number. Strides in floats.
struct Spread {
  const float* at;  ///< null: `number`
  float number;
  int strides[kMostDimensions];
};

/// Elements along `dimensions` dimensions, the last one fastest.
struct MapArguments {
  Spread left, right;
  float* made;
  int made_strides[kMostDimensions];
  int sizes[kMostDimensions];
  int dimensions, count;
  float numbers[3];
};

/// Mean and sum of squared deviations; of gradients, their sum and that of g * (x - mean).
struct NormPart {
  double sum, product;
};

/// A norm of groups of `size` elements. A weight and bias serve `pixels` elements: those of a
/// channel in group norm; in layer norm, whose groups are rows, one. All rows share the weights.
struct NormArguments {
  const float *dy, *x, *weight, *bias;  ///< dy: gradients only; weight and bias may be null
  float *mean, *rstd;                   ///< per group; frozen norm: mean and variance as inputs
  float *to, *dw, *db;                  ///< dw and db may be null
  NormPart* parts;
  double eps;
  int groups, size, pixels;
  int weights;  ///< from one group's to the next one's
  int slices;   ///< per group, one block each; gradient parts: per channel
};

/// Functions of rows [rows][row].
struct RowArguments {
  const float *a, *b;  ///< softmax: x; its gradient: dy, y
  float* to;
  int row;
  bool logarithm;
};

struct SumArguments {
  const float* x;
  float* sums;
  float factor;
  int count, columns;  ///< elements per sum; columns of a matrix, or channels
};

/// to[c][pixel] = bytes[pixel][c] / 255.
struct BytesArguments {
  const unsigned char* bytes;
  float* to;
  int channels, pixels;
};

constexpr int kColumns = 32;  ///< per block that sums columns

struct PoolTaps {
  int count, stride, padding, dilation;  ///< as kernels::Taps
};
struct PoolArguments {
  const float *x, *dy;
  float* to;
  int channels, in_height, in_width, out_height, out_width;
  PoolTaps rows, columns;
  bool counts_zeros;
  float divisor;  ///< as kernels::Pool
};

}  // namespace millrace::gpu
