// What a GPU's kernels are told: read by the kernels and by who launches them. Images are planes,
// [channels][height][width], without gaps.
#pragma once

namespace millrace::gpu {

enum class Activation { none, relu, sigmoid };  // as kernels::Activation

struct ConvolutionArguments {
  const float* in;
  const float* weights;  ///< [groups * out][in][taps]; of a data gradient [groups * in][out][taps]
  const float* bias;     ///< a number an output channel, or null
  const float* mask;     ///< as out: zeros where it is not above 0, or null
  float* out;
  int groups;
  int in_channels, in_height, in_width;  ///< channels of a group
  int out_channels, out_height, out_width;
  int taps;
  Activation activation;
  bool fours;          ///< rows of `in` are aligned fours of floats
  bool writes_fours;   ///< of `out` and `mask`
  bool weights_early;  ///< nothing that this launch may come before writes the weights
};

struct WeightGradient {
  const float* x;     ///< [groups * in][in_height][in_width]
  const float* dy;    ///< [groups * out][out_height][out_width]
  float* parts;       ///< [slices][groups * out][in][taps]
  float* bias_parts;  ///< [slices][groups * out], or null
  int groups;
  int in_channels, in_height, in_width, out_channels, out_height, out_width;
  int taps, slices, blocks;
  bool fours;  ///< rows of x are aligned fours of floats
  bool dy_fours;
};
constexpr int kMostWeightGradients = 32;
struct WeightGradientArguments {
  WeightGradient all[kMostWeightGradients];
};

/// Sums of which parts lie one after another.
struct Parts {
  const float* parts;  ///< [slices][count]
  float* sum;          ///< [count]
  int slices, count;
  bool accumulate;  ///< adds to what is there
  int blocks;
};
struct PartsArguments {
  Parts all[2 * kMostWeightGradients];
};

constexpr int kThreads = 256;  ///< of a block of these kernels
constexpr int kSumThreads = 1024;

struct SquaredErrorArguments {
  const float *prediction, *target;
  const float* scale;  ///< of the gradient: one number
  float* out;          ///< the loss, or the gradient
  double* parts;       ///< of the loss: a block's, where there are several
  int count, blocks;
  bool through_sigmoid;  ///< the gradient by what the sigmoid that made the prediction was given
};

}  // namespace millrace::gpu
