// What the vector files give to the rest: functions compiled once for each instruction set, of
// which Highway picks one at run time. Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "capture/program/kernels/kernels.h"

namespace millrace::kernels {

/// Vectors of float on this machine.
std::size_t lanes();

inline std::size_t round_up(std::size_t count, std::size_t unit) {
  return (count + unit - 1) / unit * unit;
}

/// Elements that are summed up together, so that sums do not depend on who does what.
constexpr std::size_t kUpdateBlock = 1024;
/// The row of old weights that the newest take next.
inline std::int64_t oldest(const stages::CorrectionNumbers& n, const stages::CorrectionMemory& m) {
  return (*m.newest + 1) % (n.updates + 1);
}

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

/// Vectors along the output channels; one broadcast source float meets every kernel row that
/// reaches it. Weights: [channel block][kernel_rows][taps][lanes], zeros beyond the channels.
void correlate_wide(const Correlation& c);
/// Vectors along the taps, summed at the end: for a few output channels.
/// Weights: [channels][kernel_rows][taps rounded up to lanes], zeros beyond the taps.
void correlate_narrow(const Correlation& c);

/// The gradient of a correlation's weights for `lanes` channels of `vectors`:
/// [kernel_rows][taps][lanes] at `sums`, of which taps [tap_begin, tap_end) are made.
struct WeightSums {
  const float* broadcast =
      nullptr;  ///< pixel (0, 0) of the side with the taps; zeros left and right
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
void weight_sums(const WeightSums& w);
/// Factor times the sum over all pixels, for each of channels [begin, end).
void channel_sums(const float* source, const Layout& layout, std::size_t begin, std::size_t end,
                  float* sums, bool accumulate, float factor = 1);

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
/// values = the products of rows [begin, end) and columns.
void row_products(const Rows& r);
/// columns = the sums of all rows, each times its value; elements [begin, end).
void row_sums(const Rows& r);
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

/// packed[places[q] + l] = rows[l * stride + q]; lanes from `row_count` on get zeros.
void to_lanes(const float* rows, std::size_t stride, std::size_t row_count,
              std::span<const std::uint32_t> places, float* packed);
/// The way back: rows[l * stride + q] = packed[places[q] + l], or += with `add`.
void from_lanes(const float* packed, std::span<const std::uint32_t> places, float* rows,
                std::size_t stride, std::size_t row_count, bool add);

}  // namespace millrace::kernels
