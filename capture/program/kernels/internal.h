// What the files of this folder share: the kernels that there are, and functions compiled once for
// each instruction set, of which Highway picks one at run time. Internal to this folder.
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

// ---- The kernels, by name. What can't do a convolution is none of its candidates().

constexpr const char* kWide = "wide";  ///< vectors along the output channels
std::vector<std::string> correlations(const Convolution& convolution);
std::unique_ptr<Kernel> make_correlation(const Convolution& convolution, const std::string& name);

/// For few output pixels and many weights.
constexpr const char* kRows = "rows";
bool rows_are_faster(const Convolution& convolution);
std::unique_ptr<Kernel> make_rows(const Convolution& convolution);

/// For a kernel of one tap.
constexpr const char* kMatrix = "matrix";
bool matrix_can_do(const Convolution& convolution);
bool matrix_is_faster(const Convolution& convolution);
std::unique_ptr<Kernel> make_matrix(const Convolution& convolution);

constexpr const char* kPlain = "plain";  ///< vectors along the output channels
std::vector<std::string> weight_gradients(const Convolution& convolution);
std::unique_ptr<Kernel> make_weight_gradient(const Convolution& convolution,
                                             const std::string& name);

/// As products of transformed squares; empty: none can do it.
std::vector<std::string> transforms(const Convolution& convolution);
/// The one that is fastest of those that the method allows, if it is faster than a direct kernel;
/// else empty. By shape alone.
std::string faster_transform(const Convolution& convolution);
/// Null: the name is none of transforms().
std::unique_ptr<Kernel> make_transformed(const Convolution& convolution, const std::string& name);

/// For a convolution of each channel by itself: vectors along the channels.
constexpr const char* kDepthwise = "depthwise";
std::unique_ptr<Kernel> make_depthwise(const Convolution& convolution);

/// Products of bfloat16 on processors that have them, for columns of taps side by side.
constexpr const char* kBf16 = "bf16";
bool bf16_can_do(const Convolution& convolution);
bool bf16_is_faster(const Convolution& convolution);
std::unique_ptr<Kernel> make_bf16(const Convolution& convolution);

/// A kernel of one group's channels, group by group, on copies of them.
constexpr const char* kGrouped = "grouped-";  ///< and the kernel's name
Convolution of_one_group(const Convolution& convolution);
std::unique_ptr<Kernel> make_grouped(const Convolution& convolution, const std::string& name);

/// A window of any kind: what its taps meet, side by side, is the input of a kernel of one tap.
constexpr const char* kUnfolded = "unfolded-";  ///< and the kernel's name
Convolution of_one_tap(const Convolution& convolution);
std::unique_ptr<Kernel> make_unfolded(const Convolution& convolution, const std::string& name);

// ---- Shapes.

inline bool forward(const Convolution& c) {
  return c.pass == Pass::kForward;
}
/// Of Operands::source.
inline const Layout& source_of(const Convolution& c) {
  return forward(c) ? c.input : c.output;
}
/// Of what the forward and the data gradient make.
inline const Layout& made_by(const Convolution& c) {
  return forward(c) ? c.output : c.input;
}

inline std::size_t round_up(std::size_t count, std::size_t unit) {
  return (count + unit - 1) / unit * unit;
}

/// Along one side of what a forward or a data gradient makes: index to + to_step * i, i < size,
/// takes `count` of the kernel's indices, first + step * m, from source index from + pace * i + m.
struct Axis {
  int count = 0, first = 0, step = 1;
  int from = 0, pace = 1;
  int to = 0, to_step = 1, size = 0;
};
/// A gradient's side falls into pieces by the remainder of its index by the stride, some of which
/// may be empty: pixels of one remainder meet one part of the taps. The forward's is one.
std::vector<Axis> axes_of(Pass pass, const Taps& taps, int size);

/// The taps [first, last) of a side that meet its inputs where an output lies; tap i meets
/// begin + i * dilation. None: last is at most first.
struct Met {
  Met(const Taps& taps, int output, int inputs)
      : begin(output * taps.stride - taps.padding),
        first(begin < 0 ? (-begin + taps.dilation - 1) / taps.dilation : 0),
        last(std::min(taps.count, (inputs - begin + taps.dilation - 1) / taps.dilation)) {}
  int count() const { return std::max(0, last - first); }
  int begin, first, last;
};

/// Elements of an update that are summed up together, so that sums do not depend on who does what.
constexpr std::size_t kUpdateBlock = 1024;
/// The row of old weights that the newest take next.
inline std::int64_t oldest(const stages::CorrectionNumbers& n, const stages::CorrectionMemory& m) {
  return (*m.newest + 1) % (n.updates + 1);
}

// ---- Compiled for each instruction set.

/// Vectors of float on this machine.
std::size_t lanes();

/// A correlation: every output pixel is the sum over `kernel_rows` rows of `taps` neighbouring
/// floats. In NHWC the taps of one kernel row, kernel columns times channels, lie side by side.
struct Correlation {
  const float* source = nullptr;  ///< first tap of output pixel (0, 0); lies in source row `top`
  std::size_t source_row = 0;     ///< floats from one source row to the next
  int source_height = 0;          ///< rows outside 0 to here are zeros and are not read
  int top = 0;
  int row_step = 1;            ///< source rows from one output row to the next
  std::size_t pixel_step = 0;  ///< source floats from one output pixel to the next
  int kernel_rows = 0, taps = 0;
  const float* weights = nullptr;  ///< packed
  std::size_t weights_block = 0;   ///< floats from one block of channels to the next
  float* destination = nullptr;
  std::size_t step_y = 0, step_x = 0;
  int height = 0, width = 0, channels = 0;  ///< of the output
  const float* bias = nullptr;
  Activation activation = Activation::kNone;
  const float* mask = nullptr;  ///< lies as the destination
};

/// The gradient of a correlation's weights for `lanes` channels of `vectors`:
/// [kernel_rows][taps][lanes] at `sums`, of which taps [tap_begin, tap_end) are made.
struct WeightSums {
  const float* broadcast = nullptr;  ///< the side with the taps, zeros left and right: pixel (0, 0)
  std::size_t broadcast_row = 0;
  int broadcast_height = 0, broadcast_channels = 0;
  const float* vectors = nullptr;  ///< pixel (0, 0) of the other side
  std::size_t vectors_row = 0;
  int height = 0, width = 0, channels = 0;  ///< of `vectors`
  int channel = 0;                          ///< the first of the `lanes`
  int kernel = 1, stride = 1;
  int tap_begin = 0, tap_end = 0;  ///< of a kernel row's columns times channels
  const float* zeros = nullptr;    ///< a row of `vectors` that holds zeros
  float* sums = nullptr;
};

/// A matrix of weights in PyTorch's order, a row an output channel, and a column of each of a few
/// output pixels.
struct Rows {
  const float* rows = nullptr;  ///< [channels][row]
  std::size_t row = 0;
  std::size_t channels = 0;
  float* columns = nullptr;  ///< [pixels][row]
  float* values = nullptr;   ///< [pixels][channels]
  int pixels = 0;
  std::size_t begin = 0, end = 0;  ///< the rows to be made, or the part of each row
};

/// For each row and column the sum over k of a[row][k] * b[k][column], of complex numbers a times
/// b's conjugate. Complex numbers lie as a vector of real parts, then one of imaginary parts.
struct Products {
  bool complex = false;
  bool transposed = false;  ///< a lies as [k][row]
  const float* a = nullptr;
  std::size_t a_pitch = 0;  ///< floats to the next row of a, of a transposed one to the next k
  const float* b = nullptr;
  std::size_t b_row = 0;
  float* c = nullptr;
  std::size_t c_row = 0;
  bool accumulate = false;
  int rows = 0, depth = 0, vectors = 0;  ///< vectors of columns
};
void products(const Products& p);

/// Rows of sums made final: to = activation(values + bias), zeros where the mask is at most 0.
struct FinishRows {
  const float* values = nullptr;
  std::size_t values_row = 0;
  const float* bias = nullptr;  ///< or null
  Activation activation = Activation::kNone;
  const float* mask = nullptr;  ///< or null
  bool accumulate = false;      ///< without a mask and an activation: add to what is there
  float* to = nullptr;
  std::size_t row = 0;  ///< floats to the next of `to` and of the mask
  std::size_t rows = 1, count = 0;
};
void finish_rows(const FinishRows& f);

/// Factor times the sum over all pixels, for each of channels [begin, end).
void channel_sums(const float* source, const Layout& layout, std::size_t begin, std::size_t end,
                  float* sums, bool accumulate, float factor = 1);
/// A weight gradient's share of the bias's, if that is wanted.
void bias_gradient(const Convolution& convolution, const Operands& operands, Share share);

/// packed[places[q] + l] = rows[l * stride + q]; lanes from `row_count` on get zeros.
void to_lanes(const float* rows, std::size_t stride, std::size_t row_count,
              std::span<const std::uint32_t> places, float* packed);
/// The way back: rows[l * stride + q] = packed[places[q] + l], or += with `add`.
void from_lanes(const float* packed, std::span<const std::uint32_t> places, float* rows,
                std::size_t stride, std::size_t row_count, bool add);

/// A row of an image with `padding` zero pixels left and right, in floats.
inline std::size_t padded_row(const Layout& image, int padding) {
  return std::size_t(image.width + 2 * padding) * image.channels;
}
/// Copies rows [first, last) so. \returns the address of pixel (first, 0) in `buffer`, which takes
/// (last - first) * padded_row() floats.
const float* pad_rows(const Layout& image, int padding, const float* source, int first, int last,
                      float* buffer);

}  // namespace millrace::kernels
