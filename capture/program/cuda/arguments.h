// Arguments of the GPU kernels. Images are contiguous planes, [channels][height][width].
#pragma once

#include "stages/update_numbers.h"

namespace millrace::gpu {

enum class Activation { none, relu, sigmoid };  // as kernels::Activation

struct ConvolutionArguments {
  const float* in;
  const float* weights;  ///< [groups * out][in][taps]; data gradient: [groups * in][out][taps]
  const float* bias;     ///< one per output channel, or null
  const float* mask;     ///< like out: zeros where it is not above 0; or null
  float* out;
  int groups;
  int in_channels, in_height, in_width;  ///< channels per group
  int out_channels, out_height, out_width;
  int taps;
  Activation activation;
  bool fours;          ///< rows of `in` are aligned in fours
  bool writes_fours;   ///< rows of `out` and `mask` are aligned in fours
  bool weights_early;  ///< no launch that this one may overlap writes the weights
};

struct WeightGradient {
  const float* x;     ///< [groups * in][in_height][in_width]
  const float* dy;    ///< [groups * out][out_height][out_width]
  float* parts;       ///< [slices][groups * out][in][taps]
  float* bias_parts;  ///< [slices][groups * out], or null
  int groups;
  int in_channels, in_height, in_width, out_channels, out_height, out_width;
  int taps, slices, blocks;
  bool fours;  ///< rows of x are aligned in fours
  bool dy_fours;
};
constexpr int kMostWeightGradients = 32;
struct WeightGradientArguments {
  WeightGradient all[kMostWeightGradients];
};

/// Sums whose parts lie in sequence.
struct Parts {
  const float* parts;  ///< [slices][count]
  float* sum;          ///< [count]
  int slices, count;
  bool accumulate;  ///< adds to the existing sum
  int blocks;
};
struct PartsArguments {
  Parts all[2 * kMostWeightGradients];
};

constexpr int kThreads = 256;  ///< per block of these kernels
constexpr int kSumThreads = 512;

struct SquaredErrorArguments {
  const float *prediction, *target;
  const float* scale;  ///< one number, for the gradient
  float* out;          ///< the loss, or the gradient
  double* parts;       ///< of the loss, per block, if there are several
  int count, blocks;
  bool through_sigmoid;  ///< gradient with respect to the input of the sigmoid before
};

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
  const float *gradient, *source, *weight, *bias;  ///< weight and bias may be null
  float *mean, *rstd;  ///< per group; frozen norm: mean and variance as inputs
  float *destination, *weight_gradient, *bias_gradient;  ///< gradients may be null
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

/// From pinned host memory to the device or back.
struct CopyArguments {
  const void* from;
  void* to;
  int bytes, blocks;
  bool to_host;
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

constexpr int kMostUpdateBlocks = 1024;
constexpr int kFormulaFloats = 16;  ///< of shared memory, for an optimizer's formula

/// Passed from launch to launch of an update.
struct UpdateNotes {
  double ways[kMostUpdateBlocks];  ///< distance that a block's weights moved
  bool faults[kMostUpdateBlocks];  ///< whether a block's gradients are not all finite
  long long oldest;                ///< row of the oldest weights
  float steps;                     ///< including this one
};

/// Arguments of check_and_update(); flat buffers of `count` floats.
struct UpdateArguments {
  stages::UpdateNumbers numbers;
  const float *from, *gradient;
  float* to;
  stages::UpdateState state;
  stages::CorrectionMemory memory;
  const double* rate;
  const bool* given;  ///< whether the gradient is finite, or null
  bool* finite;
  float* skipped;
  UpdateNotes* notes;
  int count, blocks;
};

}  // namespace millrace::gpu
