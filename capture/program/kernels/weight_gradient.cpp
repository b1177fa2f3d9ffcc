#include <algorithm>

#include "capture/program/kernels/internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/weight_gradient.cpp"
#include <hwy/foreach_target.h>

#include "capture/program/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels::HWY_NAMESPACE {

constexpr int kMostRows = kManyRegisters ? 5 : 3;  ///< kernel rows in registers at once
/// Taps that fit in registers with that many kernel rows.
constexpr int most_taps(int rows) {
  if (!kManyRegisters) return rows == 3 ? 4 : rows == 2 ? 6 : 10;
  return rows == 5 ? 5 : rows == 4 ? 6 : rows == 3 ? 9 : rows == 2 ? 12 : 20;
}

/// The source rows and columns that one pass over part of the image sums for `lanes` channels.
struct Part {
  const WeightSums& w;
  int channel;
  int row_begin, row_end;  ///< of the broadcast side for stride 1, else of the vector side
  int column_begin, column_end;
  bool first;  ///< the first part, which starts the totals
};

/// sums[ky][t] += over one row of pixels: elements e of vectors[ky][x] * broadcast[x + t].
template <int R, int T>
HWY_INLINE void add_row(const auto& e, const float* HWY_RESTRICT broadcast,
                        std::size_t broadcast_step, const float* const (&vectors)[R],
                        std::size_t vectors_step, int width, V (&sums)[R][T]) {
  std::size_t at = 0;
  for (int x = 0; x < width; ++x, at += vectors_step, broadcast += broadcast_step) {
    V v[R];
#pragma GCC unroll 8
    for (int k = 0; k < R; ++k) v[k] = e.load(vectors[k] + at);
#pragma GCC unroll 32
    for (int t = 0; t < T; ++t) {
      const V value = hn::Set(d, broadcast[t]);
#pragma GCC unroll 8
      for (int k = 0; k < R; ++k) sums[k][t] = hn::MulAdd(value, v[k], sums[k][t]);
    }
  }
}

/// Kernel rows first_row.. and taps first_tap.. of one block of channels, over one part.
template <int R, int T>
HWY_NOINLINE void sum_block(const Part& part, int first_row, int first_tap) {
  const WeightSums& w = part.w;
  const int padding = w.kernel / 2, width = part.column_end - part.column_begin;
  const std::size_t step = std::size_t(w.stride) * w.taps_side.channels;
  const std::size_t broadcast_row = padded_row(w.taps_side, padding);
  const std::size_t vectors_row = w.lane_side.row();
  const std::size_t channels = w.lane_side.channels - part.channel;
  float* const sums_begin = w.sums + part.channel / kLanes * w.sums_block;
  V sums[R][T];
  clear(sums);
  for (int r = part.row_begin; r < part.row_end; ++r) {
    // The broadcast side's row, and for each kernel row the row that it meets there.
    const int source = w.stride == 1 ? r : r * w.stride + first_row - padding;
    if (source < 0 || source >= w.taps_side.height) continue;
    const float* vectors[R];
    for (int k = 0; k < R; ++k) {
      const int y = w.stride == 1 ? r + padding - first_row - k : r;
      const float* row = y < 0 || y >= w.lane_side.height ? w.zeros : w.vectors + y * vectors_row;
      vectors[k] = row + std::size_t(part.column_begin) * w.lane_side.channels + part.channel;
    }
    const float* broadcast = w.broadcast + source * broadcast_row + part.column_begin * step +
                             first_tap - std::ptrdiff_t(padding) * w.taps_side.channels;
    if (channels >= kLanes) {
      add_row(Whole{0}, broadcast, step, vectors, w.lane_side.channels, width, sums);
    } else {
      add_row(Rest{0, first_lanes(channels)}, broadcast, step, vectors, w.lane_side.channels, width,
              sums);
    }
  }
  const std::size_t row = std::size_t(w.kernel) * w.taps_side.channels * kLanes;
#pragma GCC unroll 8
  for (int k = 0; k < R; ++k) {
#pragma GCC unroll 32
    for (int t = 0; t < T; ++t) {
      float* total = sums_begin + (first_row + k) * row + (first_tap + t) * kLanes;
      hn::Store(part.first ? sums[k][t] : hn::Add(hn::Load(d, total), sums[k][t]), d, total);
    }
  }
}

/// Splits the taps evenly into blocks that fit the registers.
template <int R>
void sum_rows(const Part& part, int first_row) {
  const int taps = part.w.tap_end - part.w.tap_begin;
  const int blocks = divided_up(taps, most_taps(R));
  for (int b = 0; b < blocks; ++b) {
    const int begin = taps * b / blocks, end = taps * (b + 1) / blocks;
    with_constant<most_taps(R)>(end - begin, [&](auto count) HWY_ATTR {
      sum_block<R, count()>(part, first_row, part.w.tap_begin + begin);
    });
  }
}

void sum_part(const Part& part) {
  const int kernel = part.w.kernel;
  const int most = part.w.stride == 1 ? kMostRows : 1;
  const int groups = divided_up(kernel, most);
  for (int g = 0; g < groups; ++g) {
    const int begin = kernel * g / groups, rows = kernel * (g + 1) / groups - begin;
    with_constant<kMostRows>(rows, [&](auto count) HWY_ATTR { sum_rows<count()>(part, begin); });
  }
}

void weight_sums(const WeightSums& w) {
  // Parts whose rows stay in L1 while every block of taps passes over them. Each part's sums begin
  // at zero, which also limits the rounding error of long sums.
  constexpr int kCache = (kManyRegisters ? 40 : 28) << 10, kColumns = 64, kLine = 16;
  const int columns = std::min(w.lane_side.width, kColumns);
  const int vectors_row =
      4 * std::min(w.lane_side.channels, std::max(int(kLanes), kLine)) * columns;
  const int broadcast_row = 4 * std::min(w.taps_side.channels * w.stride, 64) * columns;
  const int spare = kCache - (std::min(w.kernel, kMostRows) - 1) * vectors_row;
  const int most = std::max(1, spare / (vectors_row + broadcast_row));
  const int height = w.stride == 1 ? w.taps_side.height : w.lane_side.height;
  const int parts = divided_up(height, most);
  for (int i = 0; i < parts; ++i) {
    for (int x = 0; x < w.lane_side.width; x += columns) {
      for (int channel = w.channel; channel < w.last_channel; channel += int(kLanes)) {
        sum_part({w, channel, height * i / parts, height * (i + 1) / parts, x,
                  std::min(x + columns, w.lane_side.width), i == 0 && x == 0});
      }
    }
  }
}

}  // namespace millrace::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(weight_sums);

namespace {

constexpr const char* kSwapped = "swapped";

class WeightGradientKernel final : public Kernel {
 public:
  /// Plain: vectors along the output channels, taps from x. Swapped: vectors along the input
  /// channels, taps from dy, which is convolved with x by the flipped kernel.
  WeightGradientKernel(const Convolution& c, bool swapped)
      : c_(c),
        swapped_(swapped),
        taps_side_(swapped ? c.output : c.input),
        lane_side_(swapped ? c.input : c.output) {
    const std::size_t of_kernel = std::size_t(c.kernel) * c.kernel;
    sums_ = round_up(of_kernel * taps_side_.channels * lanes(), 16);
    zeros_ = round_up(std::size_t(lane_side_.width) * lane_side_.channels, 16);
    const int taps = int(of_kernel);
    for (int q = 0; q < (swapped ? taps : taps * c.input.channels); ++q) {
      const int place =
          swapped ? (taps - 1 - q) * c.output.channels : q % taps * c.input.channels + q / taps;
      places_.push_back(place * lanes());
    }
  }

  std::size_t scratch_floats() const override {
    return zeros_ + (copies() ? padded_row(taps_side_, c_.kernel / 2) * taps_side_.height : 0);
  }
  std::size_t shared_floats(int) const override { return blocks() * sums_; }
  int phases(int threads) const override { return by_channels(threads) ? 1 : 2; }

  void run(const Operands& operands, int phase, Share share) const override {
    const std::size_t channels = lane_side_.channels;
    if (phase == 1) return unpack(operands, 0, channels, share);  // including other threads' sums
    float* const zeros = operands.scratch;
    std::fill(zeros, zeros + zeros_, 0.0f);
    const float* taps = swapped_ ? operands.source : operands.x;
    WeightSums w{.broadcast = taps,
                 .taps_side = taps_side_,
                 .vectors = swapped_ ? operands.x : operands.source,
                 .lane_side = lane_side_,
                 .last_channel = int(channels),
                 .kernel = c_.kernel,
                 .stride = c_.stride,
                 .tap_end = c_.kernel * taps_side_.channels,
                 .zeros = zeros,
                 .sums = operands.shared,
                 .sums_block = sums_};
    if (copies())
      w.broadcast = pad_rows(taps_side_, c_.kernel / 2, taps, 0, taps_side_.height, zeros + zeros_);
    const bool by_channels = this->by_channels(share.count);
    const auto [begin, end] =
        by_channels ? share.of(channels, lanes()) : share.of(std::size_t(w.tap_end));
    (by_channels ? w.channel : w.tap_begin) = int(begin);
    (by_channels ? w.last_channel : w.tap_end) = int(end);
    HWY_DYNAMIC_DISPATCH(weight_sums)(w);
    if (by_channels) unpack(operands, begin, end, {});
    bias_gradient(c_, operands, share);
  }

 private:
  bool copies() const { return c_.kernel > 1; }
  std::size_t blocks() const { return vectors_of(lane_side_.channels); }
  /// Whether threads share the channels, each with its own sums; else the taps of few channels.
  bool by_channels(int threads) const {
    const auto all = std::size_t(threads);
    return blocks() % all == 0 || blocks() >= 4 * all;
  }

  /// Stores a share of the sums of channels [begin, end) in PyTorch's order.
  void unpack(const Operands& operands, std::size_t begin, std::size_t end, Share share) const {
    for (std::size_t channel = begin; channel < end; channel += lanes())
      unpack(operands.shared + channel / lanes() * sums_, channel, operands.made, share);
  }
  void unpack(const float* sums, std::size_t channel, float* gradient, Share share) const {
    const std::size_t in = c_.input.channels, out = c_.output.channels;
    const std::size_t taps = std::size_t(c_.kernel) * c_.kernel;
    const std::size_t rows = std::min(lanes(), lane_side_.channels - channel);
    if (!swapped_) {
      const auto [begin, end] = share.of(places_.size(), 16);
      from_lanes(sums, std::span(places_).subspan(begin, end - begin),
                 gradient + channel * in * taps + begin, in * taps, rows, c_.accumulate);
      return;
    }
    const auto [begin, end] = share.of(out);
    for (std::size_t o = begin; o < end; ++o)
      from_lanes(sums + o * lanes(), places_, gradient + (o * in + channel) * taps, taps, rows,
                 c_.accumulate);
  }

  const Convolution c_;
  const bool swapped_;
  const Layout taps_side_, lane_side_;
  std::size_t sums_ = 0, zeros_ = 0;
  std::vector<std::uint32_t> places_;  ///< for from_lanes
};

}  // namespace

std::vector<std::string> weight_gradients(const Convolution& c) {
  if (rows_are_faster(c)) return {kRows, kPlain};
  if (c.stride != 1 || std::size_t(c.output.channels) >= lanes()) return {kPlain};
  // The side with more channels fills the lanes better.
  if (c.output.channels < c.input.channels) return {kSwapped, kPlain};
  return {kPlain, kSwapped};
}

std::unique_ptr<Kernel> make_weight_gradient(const Convolution& convolution,
                                             const std::string& name) {
  return std::make_unique<WeightGradientKernel>(convolution, name == kSwapped);
}

}  // namespace millrace::kernels
#endif
