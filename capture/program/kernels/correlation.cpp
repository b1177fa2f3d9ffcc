// Forward and data gradient: correlations with the weights, flipped for the gradient.
#include <algorithm>

#include "capture/program/kernels/internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/correlation.cpp"
#include <hwy/foreach_target.h>

#include "capture/program/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels::HWY_NAMESPACE {

/// B blocks of channels, from `channel` on, of P output pixels at (y, x).
template <int B, int P>
HWY_NOINLINE void wide_tile(const Correlation& c, int y, int x, int channel, const float* weights) {
  const float* HWY_RESTRICT source = c.source + y * c.row_step * c.source_row + x * c.pixel_step;
  // The kernel's rows that meet source rows with values.
  const int top = c.top + y * c.row_step;
  const int begin = std::max(0, -top), end = std::min(c.kernel_rows, c.source_height - top);
  const std::size_t step = c.pixel_step;
  V sums[B][P];
  clear(sums);
  for (int r = begin; r < end; ++r) {
    const float* HWY_RESTRICT row = source + r * c.source_row;
    const float* HWY_RESTRICT of_row = weights + r * c.taps * kLanes;
    for (int t = 0; t < c.taps; ++t) {
      V w[B];
#pragma GCC unroll 8
      for (int b = 0; b < B; ++b) w[b] = hn::Load(d, of_row + b * c.weights_block + t * kLanes);
#pragma GCC unroll 32
      for (int p = 0; p < P; ++p) {
        const V value = hn::Set(d, row[p * step + t]);
#pragma GCC unroll 8
        for (int b = 0; b < B; ++b) sums[b][p] = hn::MulAdd(value, w[b], sums[b][p]);
      }
    }
  }
  const Finish& f = c.finish;
#pragma GCC unroll 8
  for (int b = 0; b < B; ++b, channel += kLanes) {
    const std::size_t left = c.channels - channel;
    const auto part = first_lanes(left);
    const V bias = f.bias ? load_part(part, f.bias + channel) : hn::Zero(d);
    std::size_t at = y * c.step_y + x * c.step_x + channel;
#pragma GCC unroll 32
    for (int p = 0; p < P; ++p, at += c.step_x) {
      V v = activated(hn::Add(sums[b][p], bias), f.activation);
      if (f.mask) v = masked(v, load_part(part, f.mask + at));
      if (left >= kLanes) {
        hn::StoreU(v, d, f.to + at);
      } else {
        store_part(v, part, f.to + at);
      }
    }
  }
}

/// Covers `width` by tile(pixels, x) of P pixels, at the end of two thirds as many, or fewer, each
/// a std::integral_constant. The last tile may rewrite the one before.
template <int P, typename Tile>
HWY_INLINE void cover(int width, const Tile& tile) {
  constexpr int Q = P * 2 / 3;
  const std::integral_constant<int, P> wide;
  int x = 0, left = width;
  for (; left == P || left > std::max(P, 2 * Q); x += P, left -= P) tile(wide, x);
  if (left == 0) return;
  if constexpr (Q > 0) {
    const std::integral_constant<int, Q> medium;
    if (left > Q && left < P && width >= P) return tile(wide, width - P);
    if (left > Q) tile(medium, x);
    if (width >= Q) return tile(medium, width - Q);
    if constexpr (Q > 1) cover<std::max(1, P / 3)>(width, tile);
  }
}

/// B blocks of the channels of every row, P pixels at a time.
template <int B, int P>
void wide_blocks(const Correlation& c, int y, int channel) {
  const float* const weights = c.weights + channel / kLanes * c.weights_block;
  cover<P>(c.width, [&](auto pixels, int x) { wide_tile<B, pixels()>(c, y, x, channel, weights); });
}

/// Vectors along the output channels; two blocks of channels share each broadcast source float.
/// Weights: [channel block][kernel_rows][taps][lanes], zeros beyond the channels.
void correlate_wide(const Correlation& c) {
  constexpr int kSums = kManyRegisters ? 24 : 12;  // twelve fill 16 registers
  for (int y = 0; y < c.height; ++y) {
    int channel = 0;
    for (; channel + int(kLanes) < c.channels; channel += 2 * int(kLanes))
      wide_blocks<2, kSums / 2>(c, y, channel);
    if (channel < c.channels) wide_blocks<1, kSums>(c, y, channel);
  }
}

/// Sums over the lanes of four vectors, stored contiguously.
HWY_INLINE void store_sums_of_four(V a, V b, V c, V d, float* to) {
#if HWY_TARGET == HWY_SCALAR
  const V vectors[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) to[i] = hn::GetLane(vectors[i]);
#else
  const D f;
  const hn::RepartitionToWide<D> pairs;
  const auto halves = [&](V x, V y) {
    return hn::BitCast(pairs, hn::Add(hn::InterleaveLower(f, x, y), hn::InterleaveUpper(f, x, y)));
  };
  const auto ab = halves(a, b), cd = halves(c, d);
  V sums = hn::Add(hn::BitCast(f, hn::InterleaveLower(pairs, ab, cd)),
                   hn::BitCast(f, hn::InterleaveUpper(pairs, ab, cd)));
  if constexpr (kLanes >= 8) sums = hn::Add(sums, hn::ConcatLowerUpper(f, sums, sums));
  if constexpr (kLanes >= 16) sums = hn::Add(sums, hn::SwapAdjacentBlocks(sums));
  store_part(sums, first_lanes(4), to);
#endif
}

/// Sums over the lanes, a pixel's channels contiguous, padded with zeros to a multiple of four.
template <int O, int P>
HWY_INLINE void store_sums(const V (&sums)[O][P], float* to) {
  const auto sum = [&](int i) { return i < O * P ? sums[i % O][i / O] : hn::Zero(d); };
#pragma GCC unroll 8
  for (int i = 0; i < O * P; i += 4)
    store_sums_of_four(sum(i), sum(i + 1), sum(i + 2), sum(i + 3), to + i);
}

template <int O, int P>
HWY_NOINLINE void narrow_tile(const Correlation& c, int y, int x, int channel) {
  const std::size_t vectors = divided_up(std::size_t(c.taps), kLanes);
  const std::size_t of_channel = c.kernel_rows * vectors * kLanes;
  const float* source = c.source + y * c.row_step * c.source_row + x * c.pixel_step;
  const float* channel_weights = c.weights + channel * of_channel;
  const int top = c.top + y * c.row_step;
  const int begin = std::max(0, -top), end = std::min(c.kernel_rows, c.source_height - top);
  const auto part = first_lanes(c.taps - (vectors - 1) * kLanes);
  V sums[O][P];
  clear(sums);
  for (int r = begin; r < end; ++r) {
    const float* weights = channel_weights + r * vectors * kLanes;
    for (std::size_t t = 0; t < vectors; ++t, weights += kLanes) {
      V w[O];
#pragma GCC unroll 8
      for (int o = 0; o < O; ++o) w[o] = hn::Load(d, weights + o * of_channel);
      const float* from = source + r * c.source_row + t * kLanes;
#pragma GCC unroll 16
      for (int p = 0; p < P; ++p, from += c.pixel_step) {
        const V value = t + 1 < vectors ? hn::LoadU(d, from) : load_part(part, from);
#pragma GCC unroll 8
        for (int o = 0; o < O; ++o) sums[o][p] = hn::MulAdd(value, w[o], sums[o][p]);
      }
    }
  }
  alignas(64) float values[(P * O + 3 + kLanes) / kLanes * kLanes] = {};
  const Finish& f = c.finish;
  float bias[O];
  for (int o = 0; o < O; ++o) bias[o] = f.bias ? f.bias[channel + o] : 0;
  store_sums<O, P>(sums, values);
  for (int i = 0; i < O * P; ++i) values[i] += bias[i % O];
  for (int i = 0; i < P * O; i += int(kLanes))
    hn::Store(activated(hn::Load(d, values + i), f.activation), d, values + i);
  for (int p = 0; p < P; ++p) {
    const std::size_t at = y * c.step_y + (x + p) * c.step_x + channel;
    float* to = f.to + at;
    const float* mask = f.mask ? f.mask + at : nullptr;
    for (int o = 0; o < O; ++o) to[o] = mask && mask[o] <= 0 ? 0 : values[p * O + o];
  }
}

template <int O>
void narrow_channels(const Correlation& c, int channel) {
  constexpr int kPixels = (O < 4 ? 4 : 3) * (kManyRegisters ? 2 : 1);
  for (int y = 0; y < c.height; ++y) {
    cover<kPixels>(c.width,
                   [&](auto pixels, int x) { narrow_tile<O, pixels()>(c, y, x, channel); });
  }
}

/// Vectors along the taps, summed at the end: for few output channels. Weights:
/// [channels][kernel_rows][taps rounded up to lanes], zeros beyond the taps.
void correlate_narrow(const Correlation& c) {
  int channel = 0;
  for (; channel + 4 <= c.channels; channel += 4) narrow_channels<4>(c, channel);
  with_constant<3>(c.channels - channel,
                   [&](auto left) HWY_ATTR { narrow_channels<left()>(c, channel); });
}

}  // namespace millrace::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(correlate_wide);
HWY_EXPORT(correlate_narrow);

namespace {

constexpr std::size_t kAhead = 4;
constexpr std::size_t kBandFloats = 32 << 10;
constexpr const char* kNarrow = "narrow";

class CorrelationKernel final : public Kernel {
 public:
  CorrelationKernel(const Convolution& c, bool narrow)
      : c_(c),
        narrow_(narrow),
        from_(source_of(c)),
        to_(made_by(c)),
        row_(padded_row(from_, c.kernel / 2)),
        // Output rows at a time whose copied source rows stay in cache.
        band_(std::max(1, int(kBandFloats / row_) / 6) * 6) {
    const std::size_t channels = to_.channels, of_row = std::size_t(c.kernel) * from_.channels;
    block_ = narrow ? 0 : of_row * c.kernel * lanes();
    packed_ =
        narrow ? channels * c.kernel * round_up(of_row, lanes()) : vectors_of(channels) * block_;
    const auto [rows, columns] = window_of(c);
    tap_places_.resize(c.kernel * c.kernel);
    std::size_t weights = 0;
    for (const Axis& y : axes_of(c.pass, rows, to_.height)) {
      for (const Axis& x : axes_of(c.pass, columns, to_.width)) {
        add_piece(y, x, weights);
        weights += std::size_t(y.count * x.count) * from_.channels * lanes();
      }
    }
    for (std::size_t q = 0; forward(c) && q < tap_places_.size() * c.input.channels; ++q)
      places_.push_back(tap_places_[q % tap_places_.size()] + q / tap_places_.size() * lanes());
  }

  std::size_t scratch_floats() const override {
    const int reach = (band_ - 1) * row_step() + bottom_ - top_;
    return round_up(packed_, 16) + (copies() ? row_ * std::min(from_.height, reach) : 0);
  }

  void run(const Operands& operands, int, Share share) const override {
    const Part part = part_of(share);
    narrow_ ? pack_narrow(operands.weights, operands.scratch)
            : pack_wide(operands.weights, operands.scratch, part.channels);
    const auto [rows_begin, rows_end] = part.rows.of(std::size_t(rows_));
    const int begin = int(rows_begin), rows = int(rows_end);
    if (!copies()) return run_rows(operands, operands.source, 0, begin, rows, part.channels);
    float* const band = operands.scratch + round_up(packed_, 16);
    for (int y = begin; y < rows; y += band_) {
      const int end = std::min(y + band_, rows);
      const int first = std::max(0, y * row_step() + top_);
      const int last = std::min(from_.height, (end - 1) * row_step() + bottom_);
      run_rows(operands, pad_rows(from_, c_.kernel / 2, operands.source, first, last, band), first,
               y, end, part.channels);
    }
  }

 private:
  /// The data gradient of a strided convolution splits into pieces, see axes_of(); others have one.
  struct Piece {
    Correlation correlation;  ///< without addresses
    int left = 0;             ///< source column of the first tap
    std::size_t destination = 0, weights = 0;
  };

  bool copies() const { return c_.kernel > 1; }
  int row_step() const { return pieces_[0].correlation.row_step; }

  void add_piece(const Axis& y, const Axis& x, std::size_t weights) {
    for (int i = 0; i < y.count; ++i) {
      for (int j = 0; j < x.count; ++j)
        tap_places_[(y.first + y.step * i) * c_.kernel + x.first + x.step * j] =
            weights + std::size_t(i * x.count + j) * from_.channels * lanes();
    }
    const Correlation made{.source_row = row_,
                           .source_height = from_.height,
                           .top = y.from,
                           .row_step = y.pace,
                           .pixel_step = std::size_t(x.pace) * from_.channels,
                           .kernel_rows = y.count,
                           .taps = x.count * from_.channels,
                           .weights_block = block_,
                           .step_y = y.to_step * to_.row(),
                           .step_x = std::size_t(x.to_step) * to_.channels,
                           .height = y.size,
                           .width = x.size};
    pieces_.push_back({made, x.from, y.to * to_.row() + std::size_t(x.to) * to_.channels, weights});
    rows_ = std::max(rows_, made.height);
    top_ = std::min(top_, made.top);
    bottom_ = std::max(bottom_, made.top + made.kernel_rows);
  }

  /// A thread's part of the output: some rows of some blocks of channels.
  struct Part {
    Share rows, channels;
  };

  /// Minimizes the slowest thread's time; packing its weights costs each about eight pixels.
  Part part_of(Share share) const {
    constexpr std::size_t kPacking = 8;
    const std::size_t blocks = narrow_ ? 1 : vectors_of(to_.channels);
    const std::size_t width = to_.width;
    std::size_t best = 0;
    int across = 1;  // threads that share the channels
    for (int n = 1; n <= share.count; ++n) {
      if (share.count % n != 0) continue;
      const std::size_t rows = std::size_t(divided_up(rows_, share.count / n));
      const std::size_t cost = divided_up(blocks, std::size_t(n)) * (rows * width + kPacking);
      if (n > 1 && cost >= best) continue;
      best = cost;
      across = n;
    }
    return {.rows = {share.index / across, share.count / across},
            .channels = {share.index % across, across}};
  }

  /// Rows [begin, end) of each piece. `source`: pixel (source_row, 0).
  void run_rows(const Operands& operands, const float* source, int source_row, int begin, int end,
                Share share) const {
    const auto [channel, channels_end] = share.of(std::size_t(to_.channels), lanes());
    if (channel >= channels_end) return;
    for (const Piece& piece : pieces_) {
      Correlation made = piece.correlation;
      made.channels = int(channels_end - channel);
      made.height = std::min(end, made.height) - begin;
      if (made.height <= 0) continue;
      made.top += begin * made.row_step;
      made.source = source + (made.top - source_row) * std::ptrdiff_t(row_) +
                    piece.left * std::ptrdiff_t(from_.channels);
      const std::size_t at = piece.destination + begin * made.step_y + channel;
      made.finish = finish_at(c_, operands, at, channel);
      made.weights = operands.scratch + piece.weights + channel / lanes() * block_;
      narrow_ ? HWY_DYNAMIC_DISPATCH(correlate_narrow)(made)
              : HWY_DYNAMIC_DISPATCH(correlate_wide)(made);
    }
  }

  void pack_wide(const float* weights, float* packed, Share share) const {
    // PyTorch's order is [output][input][taps]. The lanes are output channels in the forward pass,
    // where the other two indices are merged, and input channels in the gradient.
    const std::size_t in = c_.input.channels, out = c_.output.channels, channels = to_.channels;
    const std::size_t taps = tap_places_.size();
    const auto [begin, end] = share.of(channels, lanes());
    packed += begin / lanes() * block_;
    for (std::size_t c = begin; c < end; c += lanes(), packed += block_) {
      const std::size_t rows = std::min(lanes(), channels - c);
      if (forward(c_)) {
        to_lanes(weights + c * in * taps, in * taps, rows, places_, packed);
        continue;
      }
      for (std::size_t o = 0; o < out; ++o) {
        const float* from = weights + (o * in + c) * taps;
        // The next rows are too far apart for the hardware prefetcher.
        const float* ahead = from + kAhead * in * taps;
        for (std::size_t i = 0; o + kAhead < out && i < rows * taps; i += 16)
          __builtin_prefetch(ahead + i);
        to_lanes(from, taps, rows, tap_places_, packed + o * lanes());
      }
    }
  }

  void pack_narrow(const float* weights, float* packed) const {
    const int to = to_.channels, from = from_.channels, taps = c_.kernel * c_.kernel;
    const std::size_t row = round_up(std::size_t(c_.kernel) * from, lanes());
    std::fill(packed, packed + packed_, 0.0f);
    for (int d = 0; d < to; ++d) {
      for (int s = 0; s < from; ++s) {
        const float* kernel = weights + (forward(c_) ? d * from + s : s * to + d) * taps;
        for (int tap = 0; tap < taps; ++tap) {
          const int ky = tap / c_.kernel, kx = tap % c_.kernel;
          packed[(std::size_t(d) * c_.kernel + ky) * row + kx * from + s] =
              kernel[forward(c_) ? tap : taps - 1 - tap];
        }
      }
    }
  }

  const Convolution c_;
  const bool narrow_;
  const Layout from_, to_;
  const std::size_t row_;                  ///< floats of a source row as correlations read it
  const int band_;                         ///< output rows of a piece at a time
  int rows_ = 0;                           ///< most of any piece
  int top_ = 0, bottom_ = 0;               ///< source rows that output row 0 reaches
  std::size_t block_ = 0, packed_ = 0;     ///< packed weights: per `lanes` channels, in all
  std::vector<std::uint32_t> tap_places_;  ///< per input channel of a block
  std::vector<std::uint32_t> places_;      ///< for all of them: for to_lanes in a forward
  std::vector<Piece> pieces_;
};

/// For fewer output channels than lanes. Counts vector multiply-adds: wide has one per tap, narrow
/// one per channel and vector of taps, and more per sum over lanes and packed weight. Factors
/// fitted to times of both over 1,558 shapes (1 to 64 channels, k1 to k15, 4x4 to 128x96) on an
/// EPYC of 2024: the choice is on average 3 % slower than the faster one with 16 lanes, 1 % with 8.
bool narrow_is_faster(const Convolution& c) {
  const Layout& made = made_by(c);
  const double to = made.channels, from = source_of(c).channels;
  const double pixels = double(made.height) * made.width;
  const std::size_t vectors = c.kernel * vectors_of(std::size_t(c.kernel * from));
  const double weights = from * to * c.kernel * c.kernel;
  const double narrow = pixels * to * (1.5 * double(vectors) + 4) + 8 * weights;
  const double wide = pixels * (from * c.kernel * c.kernel + double(lanes()) - 4);
  return narrow < wide;
}

}  // namespace

std::vector<std::string> correlations(const Convolution& c) {
  if (rows_are_faster(c)) return {kRows, kWide};
  if (std::size_t(made_by(c).channels) >= lanes() || (!forward(c) && c.stride > 1)) return {kWide};
  return narrow_is_faster(c) ? std::vector<std::string>{kNarrow, kWide}
                             : std::vector<std::string>{kWide, kNarrow};
}

std::unique_ptr<Kernel> make_correlation(const Convolution& convolution, const std::string& name) {
  return std::make_unique<CorrelationKernel>(convolution, name == kNarrow);
}

}  // namespace millrace::kernels
#endif
