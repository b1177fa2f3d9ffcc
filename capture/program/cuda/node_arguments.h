// What the kernels of nodes other than convolutions are told: read by the kernels and by who
// launches them.
#pragma once

#include "capture/program/cuda/arguments.h"

namespace millrace::gpu {

constexpr int kMostDimensions = 5;

/// An operand spread over what is made of it, or one number. Strides in floats.
struct Spread {
  const float* at;  ///< null: `number`
  float number;
  int strides[kMostDimensions];
};

/// Elements along `dimensions` dimensions, the last of which goes on fastest.
struct MapArguments {
  Spread left, right;
  float* made;
  int made_strides[kMostDimensions];
  int sizes[kMostDimensions];
  int dimensions, count;
  float numbers[3];
};

/// Of a group, or a part of it: of a float and its distance from the mean, or of a gradient and
/// its product with that.
struct NormPart {
  double sum, product;
};

/// A norm of groups of `size` elements, which `pixels` elements each have a weight and a bias: a
/// group norm's channels; a layer norm's groups are rows, with one element a weight, and share the
/// weights.
struct NormArguments {
  const float *dy, *x, *weight, *bias;  ///< dy: of gradients; weight and bias may be null
  float *mean, *rstd;                   ///< of each group; frozen: mean and variance, read
  float *to, *dw, *db;                  ///< the gradients may be null
  NormPart* parts;
  double eps;
  int groups, size, pixels;
  int weights;  ///< from a group's to the next one's
  int slices;   ///< of a group: a block each. Of gradients' parts: of a channel
};

/// Over rows [rows][row].
struct RowArguments {
  const float *a, *b;  ///< softmax: x; its gradient: dy, y
  float* to;
  int row;
  bool logarithm;
};

/// sums[c] = factor * the sum of x's channel or column c.
struct SumArguments {
  const float* x;
  float* sums;
  float factor;
  int count, columns;  ///< elements of each; the columns of a matrix, or the channels
};

/// to[c][pixel] = bytes[pixel][c] / 255.
struct BytesArguments {
  const unsigned char* bytes;
  float* to;
  int channels, pixels;
};

constexpr int kColumns = 32;  ///< of a block that sums columns

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
