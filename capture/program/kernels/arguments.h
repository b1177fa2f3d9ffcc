// What kernels bound by memory are called with, on cores and on GPUs: NVRTC compiles this file,
// too. Images are pixels [height][width][channels] on cores, planes [channels][height][width] on
// GPUs.
#pragma once

#include "stages/update_numbers.h"

#ifdef __CUDACC_RTC__
#define PLAN __host__ __device__ constexpr
namespace std {
using size_t = ::size_t;
}
#else
#include <cstddef>
#define PLAN constexpr
#endif

namespace millrace::kernels {

PLAN int divided_up(int a, int b) {
  return (a + b - 1) / b;
}

/// An image in channels_last: pixel (y, x) is `y * row() + x * channels` floats from the first.
struct Layout {
  int height = 0, width = 0, channels = 0;

  PLAN int pixels() const { return height * width; }
  PLAN std::size_t row() const { return std::size_t(width) * channels; }  ///< in floats
  PLAN std::size_t floats() const { return std::size_t(height) * row(); }
  bool operator==(const Layout&) const = default;
};

enum class Activation { kNone, kRelu, kSigmoid };

/// A window's taps along one side: `dilation` inputs apart, over an input zero-padded at both ends.
struct Taps {
  int count = 1, stride = 1, padding = 0, dilation = 1;
  PLAN int outputs(int inputs) const {
    const int steps = inputs + 2 * padding - dilation * (count - 1) - 1;
    return steps < 0 ? 0 : steps / stride + 1;
  }
};
struct TapGrid {
  Taps rows, columns;
};
PLAN int taps_of(const TapGrid& window) {
  return window.rows.count * window.columns.count;
}

/// The taps [first, last) of a side inside the input for an output, at begin + i * dilation.
struct Met {
  PLAN Met(const Taps& taps, int output, int inputs)
      : begin(output * taps.stride - taps.padding),
        first(begin < 0 ? divided_up(-begin, taps.dilation) : 0),
        last(inputs > begin ? divided_up(inputs - begin, taps.dilation) : 0) {
    if (last > taps.count) last = taps.count;
  }
  PLAN int count() const { return last > first ? last - first : 0; }
  int begin, first, last;
};

/// Element-wise functions by name.
enum class Function {
#define FUNCTION(enumerator, ...) enumerator,
#include "capture/program/kernels/functions-inl.h"
};

/// With a function's parameters.
struct Map {
  Function function = Function::copy;
  float numbers[3] = {};
};

constexpr int kMostDimensions = 5;

/// An operand broadcast to the result. Strides in floats.
struct Spread {
  const float* at = nullptr;  ///< null: `number`
  float number = 0;
  int strides[kMostDimensions] = {};
};

/// Elements along `dimensions` dimensions, the last one fastest. On cores strides along that are 0
/// or 1, of the result 1.
struct MapArguments {
  Map map;
  Spread left, right;
  float* made = nullptr;
  int made_strides[kMostDimensions] = {};
  int sizes[kMostDimensions] = {};
  int dimensions = 0, count = 0;
};

/// Of max pooling; ties go to the first.
struct PoolArguments {
  const float* dy = nullptr;  ///< read by the gradient
  const float* x = nullptr;
  float* to = nullptr;
  Layout input, output;
  TapGrid window;
};

/// The weights that a picture's outputs give to inputs along a side.
struct WeightedSide {
  const int* counts = nullptr;     ///< [output]
  const int* inputs = nullptr;     ///< [output][most]
  const float* weights = nullptr;  ///< alike
  int most = 0;                    ///< largest count
};
struct ResampleArguments {
  const float* x = nullptr;
  float* to = nullptr;
  Layout input, output;
  WeightedSide rows, columns;
};

/// Functions of rows [rows][row].
struct RowArguments {
  const float* a = nullptr;  ///< softmax: x; its gradient: dy
  const float* b = nullptr;  ///< the gradient: y
  float* to = nullptr;
  int rows = 0, row = 0;
  bool logarithm = false;
};

struct SumArguments {
  const float* x = nullptr;
  float* sums = nullptr;  ///< one per channel
  float factor = 1;
  int count = 0, columns = 0;  ///< elements per sum; columns of a matrix, or channels
};

struct SquaredErrorArguments {
  const float *prediction = nullptr, *target = nullptr;
  const float* scale = nullptr;  ///< one number, for the gradient
  float* out = nullptr;          ///< the loss, or the gradient
  double* parts = nullptr;       ///< of the loss, per block, if there are several
  int count = 0;
  int row = 0;     ///< on cores summed in float, the rows in double
  int blocks = 0;  ///< on a GPU
  /// The gradient is that of the input of the sigmoid that made the prediction.
  bool through_sigmoid = false;
};

/// On a GPU: mean and sum of squared deviations; of gradients, their sum and that of g * (x -
/// mean).
struct NormPart {
  double sum, product;
};

/// A norm of groups of `size` elements. A weight and bias serve `pixels` elements: those of a
/// channel in group norm (with one channel per group, instance norm); in layer norm, whose groups
/// are rows, one. All rows share the weights.
struct NormArguments {
  const float* gradient = nullptr;   ///< of the output: read by the gradient
  const float* source = nullptr;     ///< of the norm
  const float* weight = nullptr;     ///< null: 1
  const float* bias = nullptr;       ///< null: 0
  float* mean = nullptr;             ///< per group: written by the norm; if frozen, read by both
  float* rstd = nullptr;             ///< 1 / sqrt(variance + eps); if frozen, the variance
  float* destination = nullptr;      ///< output, or the source's gradient (null: not wanted)
  float* weight_gradient = nullptr;  ///< null: not wanted
  float* bias_gradient = nullptr;    ///< null: not wanted
  NormPart* parts = nullptr;         ///< on a GPU; on cores two per channel of scratch
  double eps = 0;
  int groups = 1, size = 0, pixels = 1;
  int weights = 0;      ///< from one group's to the next one's
  int slices = 1;       ///< on a GPU: per group, one block each; gradient parts: per channel
  bool frozen = false;  ///< mean and variance are given, as in batch norm in eval mode
};

/// Passed from launch to launch of an update on a GPU.
constexpr int kMostUpdateBlocks = 1024;
struct UpdateNotes {
  double ways[kMostUpdateBlocks];  ///< distance that a block's weights moved
  bool faults[kMostUpdateBlocks];  ///< whether a block's gradients are not all finite
  long long oldest;                ///< row of the oldest weights
  float steps;                     ///< including this one
};

/// Arguments of check_and_update(); flat buffers of `count` floats.
struct UpdateArguments {
  stages::UpdateNumbers numbers;
  const float *from = nullptr, *gradient = nullptr;
  float* to = nullptr;  ///< may be `from`
  stages::UpdateState state;
  stages::CorrectionMemory memory;
  const double* rate = nullptr;  ///< multiplies numbers.lr
  const bool* given = nullptr;   ///< whether the gradient is finite; null: check it
  bool* finite = nullptr;
  float* skipped = nullptr;
  double* sums = nullptr;        ///< on cores: update_sums()
  UpdateNotes* notes = nullptr;  ///< on a GPU
  long long count = 0;
  int blocks = 0;  ///< on a GPU
};

}  // namespace millrace::kernels
