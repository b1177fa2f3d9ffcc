// The gradients of weights by products of bfloat16: sums over pixels of dy's channels, which lie in
// planes, times x's, which lie in pairs of pixels. A tap is a shift of the pairs.
#include <algorithm>

#include "capture/program/kernels/bf16_tiles.h"
#include "capture/program/kernels/internal.h"

namespace millrace::kernels {
namespace {

/// Packed at a time, so that it stays in the core's own cache until it is used.
constexpr std::size_t kBandNumbers = 256 << 10;
/// Of the pixels at a time, so that they stay in the first-level cache for all taps.
constexpr std::size_t kChunks = 16;

std::size_t reach(const Taps& taps) {
  return std::size_t((taps.count - 1) / taps.stride);
}
std::size_t blocks(const Layout& side) {
  return round_up(std::size_t(side.channels), kTile) / kTile;
}

class Bf16WeightGradient final : public Kernel {
 public:
  explicit Bf16WeightGradient(const Convolution& given)
      : c_(given.output.width < int(kDeep) ? in_one_row(given) : given),
        window_(window_of(c_)),
        taps_(std::size_t(taps_of(window_))),
        outputs_(blocks(c_.output)),
        inputs_(blocks(c_.input)),
        there_(taps_ == 1 && c_.input.channels % kTile == 0 && c_.output.channels % kTile == 0),
        pitch_(round_up(std::size_t(c_.output.width) + reach(window_.columns), 2)),
        band_(std::clamp<std::size_t>(
            kBandNumbers / (pitch_ * kTile * (outputs_ + pictures() * inputs_)), 1,
            std::size_t(c_.output.height))),
        chunks_(round_up(pitch_ * band_, kDeep) / kDeep),
        plane_(round_up(chunks_, 2) * kDeep + kDeep),
        line_(reach(window_.rows) * pitch_ + reach(window_.columns) + chunks_ * kDeep) {
    if (there_) return;
    for (std::size_t q = 0; q < taps_ * c_.input.channels; ++q) {
      const std::size_t c = q / taps_, tile = c / kTile * taps_ + q % taps_;
      places_.push_back(std::uint32_t((tile * kTile + c % kTile) * kTile));
    }
  }

  std::size_t shared_floats(int) const override {
    return (plane_numbers() + pictures() * picture()) / 2 +
           (there_ ? 0 : outputs_ * right_tiles() * kTile * kTile);
  }
  int phases(int threads) const override {
    return int(2 * bands()) + (there_ || by_outputs(threads) ? 0 : 1);
  }

  void run(const Operands& operands, int phase, Share share) const override {
    const std::size_t band = std::size_t(phase) / 2;
    if (band == bands()) return unpack(operands, 0, outputs_, share);
    if (phase % 2 == 1) return sum_up(operands, band, share);
    spread_pairs(operands, band, share);
    spread_planes(operands, band, share);
    if (!operands.bias_gradient) return;
    const Layout rows{int(height_of(band)), c_.output.width, c_.output.channels};
    const auto [first, last] = share.of(rows.channels, lanes());
    channel_sums(operands.source + band * band_ * rows.row(), rows, first, last,
                 operands.bias_gradient, c_.accumulate || band > 0);
  }

 private:
  /// A picture of dy's pitch: dy itself, or the pixels of x that taps of one remainder by the
  /// stride meet.
  struct Grid {
    int row = 0, column = 0, down = 1, right = 1;  ///< the first pixel, and steps
  };

  std::size_t right_tiles() const { return inputs_ * taps_; }
  std::size_t bands() const { return (std::size_t(c_.output.height) + band_ - 1) / band_; }
  std::size_t height_of(std::size_t band) const {
    return std::min(band_, std::size_t(c_.output.height) - band * band_);
  }

  // Of x there is a picture for each remainder, and where taps shift it by single pixels a second,
  // of the pairs that begin one pixel later.
  std::size_t copies() const { return reach(window_.columns) > 0 ? 2 : 1; }
  std::size_t remainders_right() const {
    return std::size_t(std::min(window_.columns.count, window_.columns.stride));
  }
  std::size_t pictures() const {
    const auto down = std::size_t(std::min(window_.rows.count, window_.rows.stride));
    return down * remainders_right() * copies();
  }
  std::size_t picture() const { return inputs_ * line_numbers(); }
  std::size_t line_numbers() const { return round_up(line_, kDeep) * kTile; }
  Grid grid_of(std::size_t picture) const {
    const std::size_t remainder = picture / copies();
    return {.row = int(remainder / remainders_right()) - window_.rows.padding,
            .column = int(remainder % remainders_right()) - window_.columns.padding +
                      int(picture % copies()) * window_.columns.stride,
            .down = window_.rows.stride,
            .right = window_.columns.stride};
  }

  std::size_t plane_numbers() const { return outputs_ * kTile * plane_; }
  Bf16* planes(const Operands& operands) const { return reinterpret_cast<Bf16*>(operands.shared); }
  Bf16* pairs(const Operands& operands) const { return planes(operands) + plane_numbers(); }
  float* sums(const Operands& operands) const {
    return operands.shared + (plane_numbers() + pictures() * picture()) / 2;
  }

  /// 32 pixels of a grid's row from column x on, of a block of channels.
  static PixelRun pixels(const float* image, const Layout& l, const Grid& g, std::size_t block,
                         int y, int x) {
    const int row = g.row + y * g.down, column = g.column + x * g.right;
    PixelRun run{.step = std::size_t(g.right) * l.channels,
                 .channels = int(std::min(kTile, l.channels - block * kTile))};
    if (row < 0 || row >= l.height) return run;
    run.first = image + std::ptrdiff_t(row) * std::ptrdiff_t(l.row()) +
                std::ptrdiff_t(column) * l.channels + std::ptrdiff_t(block * kTile);
    run.begin = std::clamp((g.right - 1 - column) / g.right, 0, int(kDeep));
    run.end = std::clamp((l.width - column + g.right - 1) / g.right, 0, int(kDeep));
    return run;
  }

  void spread_planes(const Operands& operands, std::size_t band, Share share) const {
    const std::size_t height = height_of(band);
    const int top = int(band * band_);
    each_run(height, outputs_, share, [&](int y, int x, std::size_t block, bool last) {
      Bf16* const to = planes(operands) + block * kTile * plane_;
      pack_planes(pixels(operands.source, c_.output, {}, block, top + y, x), run_length(x),
                  to + std::size_t(y) * pitch_ + x, plane_);
      for (std::size_t c = 0; last && c < kTile; ++c)
        std::fill(to + c * plane_ + height * pitch_, to + (c + 1) * plane_, Bf16(0));
    });
  }

  void spread_pairs(const Operands& operands, std::size_t band, Share share) const {
    const std::size_t height = height_of(band) + reach(window_.rows);
    const int top = int(band * band_);
    each_run(height, inputs_, share, [&](int y, int x, std::size_t block, bool last) {
      for (std::size_t i = 0; i < pictures(); ++i) {
        Bf16* const to = pairs(operands) + i * picture() + block * line_numbers();
        pack_pairs(pixels(operands.x, c_.input, grid_of(i), block, top + y, x), run_length(x),
                   to + (std::size_t(y) * pitch_ + x) * kTile);
        if (last) std::fill(to + height * pitch_ * kTile, to + line_numbers(), Bf16(0));
      }
    });
  }

  /// Calls pack(y, first x, block of channels, whether it is the block's last) for a share of all
  /// runs of 32 pixels.
  template <class Pack>
  void each_run(std::size_t height, std::size_t blocks, Share share, const Pack& pack) const {
    const std::size_t across = round_up(pitch_, kDeep) / kDeep, runs = height * across;
    const auto [begin, end] = share.of(runs);
    for (std::size_t i = begin; i < end; ++i) {
      for (std::size_t block = 0; block < blocks; ++block)
        pack(int(i / across), int(i % across * kDeep), block, i + 1 == runs);
    }
  }
  int run_length(int x) const { return int(std::min(kDeep, pitch_ - std::size_t(x))); }

  /// Whether threads share dy's channels alone: there are many, and sums of few pixels, which come
  /// to their place as soon as they are made.
  bool by_outputs(int threads) const {
    const std::size_t all = std::size_t(threads), pairs = (outputs_ + 1) / 2;
    return bands() == 1 && chunks_ <= kChunks && (pairs % all == 0 || pairs >= 4 * all);
  }

  /// Threads share the sums, each made of all pixels in one order.
  void sum_up(const Operands& operands, std::size_t band, Share share) const {
    const Tiles tiles;
    const std::size_t chunks = round_up(pitch_ * height_of(band), kDeep) / kDeep;
    const std::size_t across = (right_tiles() + 1) / 2;
    const bool whole = by_outputs(share.count);
    const auto [begin, end] = share.of(across * ((outputs_ + 1) / 2), whole ? across : 1);
    for (std::size_t chunk = 0; chunk < chunks; chunk += kChunks) {
      for (std::size_t i = begin; i < end; ++i) {
        const std::size_t output = i / across * 2;
        TileProducts p = products(operands, output, i % across * 2, chunk);
        p.chunks = int(std::min(kChunks, chunks - chunk));
        p.accumulate = band + chunk > 0 || (there_ && c_.accumulate);
        tiles.multiply(p);
        if (!there_ && band + 1 == bands() && chunk + kChunks >= chunks) turn(p);
        if (whole && !there_ && (i + 1) % across == 0)
          unpack(operands, output, std::min(output + 2, outputs_), {});
      }
    }
  }

  /// For from_lanes, whose lanes are dy's channels.
  static void turn(const TileProducts& p) {
    for (const auto& line : p.sums) {
      for (float* const sums : line)
        if (sums) transpose_sums(sums);
    }
  }

  /// Of two blocks of dy's channels by two right tiles, as far as there are.
  TileProducts products(const Operands& operands, std::size_t output, std::size_t tile,
                        std::size_t chunk) const {
    TileProducts p{.left_line = plane_,
                   .sums_line = there_ ? std::size_t(c_.input.channels) : kTile};
    const std::size_t last_output = std::min(output + 2, outputs_),
                      last_tile = std::min(tile + 2, right_tiles());
    for (std::size_t t = tile; t < last_tile; ++t)
      p.right[t - tile] = pairs(operands) + place_of(t) + chunk * kTilePack;
    for (std::size_t o = output; o < last_output; ++o) {
      p.left[o - output] = planes(operands) + o * kTile * plane_ + chunk * kDeep;
      for (std::size_t t = tile; t < last_tile; ++t)
        p.sums[o - output][t - tile] =
            there_ ? operands.made + (o * p.sums_line + t) * kTile
                   : sums(operands) + (o * right_tiles() + t) * kTile * kTile;
    }
    return p;
  }
  /// Where a right tile, a tap of a block of x's channels, begins among the pairs.
  std::size_t place_of(std::size_t tile) const {
    const auto &rows = window_.rows, &columns = window_.columns;
    const int tap = int(tile % taps_), y = tap / columns.count, x = tap % columns.count;
    const std::size_t shift = std::size_t(y / rows.stride) * pitch_ + x / columns.stride;
    const std::size_t remainder =
        std::size_t(y % rows.stride) * remainders_right() + x % columns.stride;
    return (remainder * copies() + shift % 2) * picture() + tile / taps_ * line_numbers() +
           shift / 2 * 2 * kTile;
  }

  /// The sums of some blocks of dy's channels to their place in PyTorch's order.
  void unpack(const Operands& operands, std::size_t block, std::size_t last_block,
              Share share) const {
    const auto [begin, end] = share.of(places_.size(), kTile);
    for (std::size_t b = block; b < last_block; ++b) {
      from_lanes(sums(operands) + b * right_tiles() * kTile * kTile,
                 std::span(places_).subspan(begin, end - begin),
                 operands.made + b * kTile * places_.size() + begin, places_.size(),
                 std::min(kTile, c_.output.channels - b * kTile), c_.accumulate);
    }
  }

  const Convolution c_;
  const TapGrid window_;
  const std::size_t taps_, outputs_, inputs_;  ///< blocks of channels
  const bool there_;                           ///< whether the sums lie as the gradient does
  const std::size_t pitch_, band_, chunks_;    ///< of a row of dy; rows at a time, their pixels
  const std::size_t plane_, line_;             ///< numbers of a plane; pixels of a picture
  std::vector<std::uint32_t> places_;          ///< for from_lanes
};

}  // namespace

std::unique_ptr<Kernel> make_bf16_weights(const Convolution& convolution) {
  return std::make_unique<Bf16WeightGradient>(convolution);
}

}  // namespace millrace::kernels
