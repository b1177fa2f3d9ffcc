// Shared by the files of this folder: the kernels, and functions compiled once per instruction set,
// which Highway selects at run time. Internal to this folder.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "capture/program/kernels/kernels.h"

namespace millrace::kernels {

// ---- Kernels by name; candidates() lists only those that can do a convolution.

constexpr const char* kWide = "wide";  ///< vectors along the output channels
std::vector<std::string> correlations(const Convolution& convolution);
std::unique_ptr<Kernel> make_correlation(const Convolution& convolution, const std::string& name);

/// For few output pixels and many weights.
constexpr const char* kRows = "rows";
bool rows_are_faster(const Convolution& convolution);
std::unique_ptr<Kernel> make_rows(const Convolution& convolution);

/// For 1x1 kernels of stride 1.
constexpr const char* kMatrix = "matrix";
bool matrix_is_faster(const Convolution& convolution);
std::unique_ptr<Kernel> make_matrix(const Convolution& convolution);

constexpr const char* kPlain = "plain";  ///< vectors along the output channels
std::vector<std::string> weight_gradients(const Convolution& convolution);
std::unique_ptr<Kernel> make_weight_gradient(const Convolution& convolution,
                                             const std::string& name);

/// Names of kernels that multiply transformed tiles; empty if none can do it.
std::vector<std::string> transforms(const Convolution& convolution);
/// The fastest, by shape, that the method allows if it beats the direct kernels; else empty.
std::string faster_transform(const Convolution& convolution);
/// Null if transforms() doesn't list the name.
std::unique_ptr<Kernel> make_transformed(const Convolution& convolution, const std::string& name);

/// For depthwise convolutions.
constexpr const char* kDepthwise = "depthwise";
std::unique_ptr<Kernel> make_depthwise(const Convolution& convolution);

/// bfloat16 products on processors that have them, for contiguous columns of taps.
constexpr const char* kBf16 = "bf16";
bool bf16_can_do(const Convolution& convolution);
bool bf16_is_faster(const Convolution& convolution);
std::unique_ptr<Kernel> make_bf16(const Convolution& convolution);

// ---- Shapes.

inline bool forward(const Convolution& c) {
  return c.pass == Pass::kForward;
}
/// Layout of Operands::source.
inline const Layout& source_of(const Convolution& c) {
  return forward(c) ? c.input : c.output;
}
/// Layout of the forward's or data gradient's result.
inline const Layout& made_by(const Convolution& c) {
  return forward(c) ? c.output : c.input;
}

inline std::size_t divided_up(std::size_t count, std::size_t unit) {
  return (count + unit - 1) / unit;
}
inline std::size_t round_up(std::size_t count, std::size_t unit) {
  return divided_up(count, unit) * unit;
}

/// Along one side of a forward's or data gradient's result: index to + to_step * i, i < size, takes
/// `count` kernel indices, first + step * m, from source indices from + pace * i + spread * m.
struct Axis {
  int count = 0, first = 0, step = 1;
  int from = 0, pace = 1, spread = 1;
  int to = 0, to_step = 1, size = 0;
};
/// Splits a gradient's side by the remainder of its index by the stride, since pixels of one
/// remainder meet one part of the taps; pieces may be empty. The forward has one piece.
std::vector<Axis> axes_of(Pass pass, const Taps& taps, int size);

/// An axis of a depthwise pass with its taps.
struct DepthwiseSide : Axis {
  struct Tap {
    int index = 0, from = 0;  ///< of the kernel; source index of output 0
    int first = 0, last = 0;  ///< i in [first, last): the source index is inside the source
    bool meets(int i) const { return i >= first && i < last; }
  };
  int begin = 0, end = 0;  ///< i in [begin, end): all taps are inside
  std::vector<Tap> taps{};
  /// Neighbouring outputs take neighbouring source pixels, as neighbouring taps do.
  bool adjacent() const { return pace == 1 && spread == 1; }
};
/// A weight gradient has the sides of its forward.
struct Depthwise {
  Convolution convolution;
  std::vector<DepthwiseSide> rows, columns;
  int row_taps = 0;                   ///< of the kernel
  std::vector<std::uint32_t> places;  ///< [tap]: its offset in packed weights
};

/// Elements of an update summed together, so that sums don't depend on the team.
constexpr std::size_t kUpdateBlock = 1024;
/// The row of old weights that the newest replace next.
inline std::int64_t oldest(const stages::CorrectionNumbers& n, const stages::CorrectionMemory& m) {
  return (*m.newest + 1) % (n.updates + 1);
}

// ---- Compiled for each instruction set.

/// Defines name(arguments, share), which calls what is compiled for this machine's instructions.
#define TEAM_KERNEL(name, Arguments)               \
  HWY_EXPORT(name);                                \
  void name(const Arguments& given, Share share) { \
    HWY_DYNAMIC_DISPATCH(name)(given, share);      \
  }

/// Floats per vector on this machine.
std::size_t lanes();
/// Vectors for so many floats.
inline std::size_t vectors_of(std::size_t floats) {
  return divided_up(floats, lanes());
}

/// What sums become: activation(sum + bias), zeros where the mask is at most 0.
struct Finish {
  const float* bias = nullptr;  ///< or null
  Activation activation = Activation::kNone;
  const float* mask = nullptr;  ///< or null; laid out like `to`
  float* to = nullptr;
};
/// For results of a convolution that begin at offset `at`, with channel `channel` of some pixel.
inline Finish finish_at(const Convolution& c, const Operands& operands, std::ptrdiff_t at,
                        std::size_t channel) {
  return {.bias = operands.bias ? operands.bias + channel : nullptr,
          .activation = c.activation,
          .mask = operands.mask ? operands.mask + at : nullptr,
          .to = operands.made + at};
}

/// A correlation: every output pixel is the sum over `kernel_rows` rows of `taps` adjacent floats.
/// In NHWC a kernel row's taps, kernel columns times channels, are contiguous.
struct Correlation {
  const float* source = nullptr;  ///< first tap of output pixel (0, 0), in source row `top`
  std::size_t source_row = 0;     ///< row stride in floats
  int source_height = 0;          ///< rows outside [0, this) are zeros and not read
  int top = 0;
  int row_step = 1;            ///< source rows between output rows
  std::size_t pixel_step = 0;  ///< source floats between output pixels
  int kernel_rows = 0, taps = 0;
  const float* weights = nullptr;  ///< packed
  std::size_t weights_block = 0;   ///< floats between blocks of channels
  Finish finish;
  std::size_t step_y = 0, step_x = 0;
  int height = 0, width = 0, channels = 0;  ///< of the output
};

/// The gradient of a correlation's weights for channels [channel, last_channel) of `vectors`: taps
/// [tap_begin, tap_end) of `sums`, [kernel_rows][taps][lanes] for each `lanes` channels.
struct WeightSums {
  const float* broadcast = nullptr;  ///< the side with the taps, zeros left and right: pixel (0, 0)
  Layout taps_side;                  ///< without those zeros
  const float* vectors = nullptr;    ///< pixel (0, 0) of the other side
  Layout lane_side;
  int channel = 0, last_channel = 0;
  int kernel = 1, stride = 1;
  int tap_begin = 0, tap_end = 0;  ///< of a kernel row's columns times channels
  const float* zeros = nullptr;    ///< a row of `vectors` that is all zeros
  float* sums = nullptr;           ///< of channel 0
  std::size_t sums_block = 0;      ///< floats to those of the next `lanes` channels
};

/// Weights in PyTorch's order, one row per output channel, and columns for a few output pixels.
struct Rows {
  const float* rows = nullptr;  ///< [channels][row]
  std::size_t row = 0;
  std::size_t channels = 0;
  float* columns = nullptr;  ///< [pixels][row]
  float* values = nullptr;   ///< [pixels][channels]
  int pixels = 0;
  std::size_t begin = 0, end = 0;  ///< the rows to compute, or the part of each row
};

/// For each row and column the sum over k of a[row][k] * b[k][column]; if complex, of a times b's
/// conjugate, each stored as a vector of real parts, then one of imaginary parts.
struct Products {
  bool complex = false;
  bool transposed = false;  ///< a is [k][row]
  const float* a = nullptr;
  std::size_t a_pitch = 0;  ///< floats to a's next row, or if transposed to the next k
  const float* b = nullptr;
  std::size_t b_row = 0;
  float* c = nullptr;
  std::size_t c_row = 0;
  bool accumulate = false;
  int rows = 0, depth = 0, vectors = 0;  ///< vectors of columns
};
void products(const Products& p);

/// Rows of sums to finish.
struct FinishRows {
  const float* values = nullptr;
  std::size_t values_row = 0;
  Finish finish;
  bool accumulate = false;  ///< if no mask and no activation: add to `to`
  std::size_t row = 0;      ///< floats to the next row of `to` and of the mask
  std::size_t rows = 1, count = 0;
};
void finish_rows(const FinishRows& f);

/// The inputs under each output pixel's taps, in the order of PyTorch's weights, zeros outside the
/// image: `of_pixel` floats per output pixel. Threads share the output's rows.
void unfold(const Convolution& convolution, const float* x, float* to, std::size_t of_pixel,
            Share share);
/// A weight gradient's share of the bias gradient, if wanted.
void bias_gradient(const Convolution& convolution, const Operands& operands, Share share);

/// packed[places[q] + l] = rows[l * stride + q]; lanes from `row_count` on get zeros.
void to_lanes(const float* rows, std::size_t stride, std::size_t row_count,
              std::span<const std::uint32_t> places, float* packed);
/// The inverse: rows[l * stride + q] = packed[places[q] + l], or += with `add`.
void from_lanes(const float* packed, std::span<const std::uint32_t> places, float* rows,
                std::size_t stride, std::size_t row_count, bool add);

/// Floats of an image's row with `padding` zero pixels left and right.
inline std::size_t padded_row(const Layout& image, int padding) {
  return std::size_t(image.width + 2 * padding) * image.channels;
}
/// Copies rows [first, last) with that padding to `buffer`, (last - first) * padded_row() floats.
/// \returns pixel (first, 0) there.
const float* pad_rows(const Layout& image, int padding, const float* source, int first, int last,
                      float* buffer);

}  // namespace millrace::kernels
