// Arguments of kernels for GPUs alone. Images are contiguous planes, [channels][height][width].
#pragma once

#include "capture/program/kernels/arguments.h"

namespace millrace::gpu {

using namespace kernels;

struct ConvolutionArguments {
  const float* in;
  const float* weights;  ///< [groups * out][in][taps]; data gradient: [groups * in][out][taps]
  const float* bias;     ///< one per output channel, or null
  const float* mask;     ///< like out: zeros where it is not above 0; or null
  float* out;
  int groups;
  Layout from, to;  ///< of a group
  int taps;
  Activation activation;
  bool fours;          ///< rows of `in` are aligned in fours
  bool writes_fours;   ///< rows of `out` and `mask` are aligned in fours
  bool weights_early;  ///< no launch that this one may overlap writes the weights
};

struct WeightGradient {
  const float* x;     ///< [groups * in][height][width]
  const float* dy;    ///< [groups * out][height][width]
  float* parts;       ///< [slices][groups * out][in][taps]
  float* bias_parts;  ///< [slices][groups * out], or null
  int groups;
  Layout from, to;  ///< of a group of x and of dy
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

constexpr int kFormulaFloats = 16;  ///< of shared memory, for an optimizer's formula

}  // namespace millrace::gpu
