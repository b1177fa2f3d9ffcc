// Arguments of the GPU kernels. Images are contiguous planes, [channels][height][width].
#pragma once

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
  bool writes_fours;   ///< the same for `out` and `mask`
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
constexpr int kSumThreads = 1024;

struct SquaredErrorArguments {
  const float *prediction, *target;
  const float* scale;  ///< one number, for the gradient
  float* out;          ///< the loss, or the gradient
  double* parts;       ///< of the loss, per block, if there are several
  int count, blocks;
  bool through_sigmoid;  ///< gradient with respect to the input of the sigmoid before
};

}  // namespace millrace::gpu
