// The gradients of weights by products of bfloat16: sums over pixels of one side's channels, which
// lie in planes, times the other's, which lie in pairs of pixels. A tap is a shift of the planes.
#include <algorithm>

#include "capture/program/kernels/bf16_tiles.h"
#include "capture/program/kernels/own.h"
#include "capture/program/kernels/simd.h"

namespace millrace::kernels {
namespace {

/// Of the pixels at a time, so that they stay in the first-level cache for all taps.
constexpr std::size_t kChunks = 16;

class Bf16WeightGradient final : public Kernel {
 public:
  explicit Bf16WeightGradient(const Convolution& given)
      : c_(in_one_row(given)),
        window_(window_of(c_)),
        taps_(std::size_t(taps_of(window_))),
        // Without taps to shift by, the sums of dy's planes lie as the gradient does.
        there_(taps_ == 1 && c_.input.channels % kTile == 0 && c_.output.channels % kTile == 0),
        pitch_(round_up(std::size_t(c_.output.width) + reach(window_.columns), 2)),
        chunks_(round_up(pitch_ * c_.output.height, kDeep) / kDeep) {
    const std::size_t shift = reach(window_.rows) * pitch_ + reach(window_.columns);
    plane_ = round_up(shift + chunks_ * kDeep, 2 * kDeep) + kDeep;  // not all in one place of a cache
    if (there_) return;
    for (std::size_t q = 0; q < taps_ * c_.input.channels; ++q) {
      const std::size_t c = q / taps_, tile = (c / kTile * taps_ + q % taps_) * right_blocks();
      places_.push_back(std::uint32_t((tile * kTile + c % kTile) * kTile));
    }
  }

  std::string name() const override { return kBf16; }
  std::size_t packed_floats() const override { return 0; }
  std::size_t scratch_floats() const override { return 0; }
  std::size_t shared_floats(int) const override {
    return (plane_numbers() + pair_numbers()) / 2 +
           (there_ ? 0 : left_tiles() * right_blocks() * kTile * kTile);
  }
  void pack(const float*, float*, Share) const override {}
  int phases(int) const override { return there_ ? 2 : 3; }

  void run(const Operands& operands, int phase, Share share) const override {
    if (phase == 2) return unpack(operands, share);
    if (phase == 1) return sum_up(operands, share);
    spread_planes(operands, share);
    spread_pairs(operands, share);
    if (!operands.bias_gradient) return;
    const auto [first, last] = share.of(c_.output.channels, lanes());
    channel_sums(operands.dy, c_.output, first, last, operands.bias_gradient, c_.accumulate);
  }

 private:
  /// Of x, the pixels that a tap of this remainder by the stride meets, as a picture of dy's pitch.
  struct Grid {
    int row = 0, column = 0, down = 1, right = 1;  ///< the first pixel of x, and steps
  };

  static std::size_t reach(const Taps& taps) {
    return std::size_t((taps.count - 1) / taps.stride);
  }
  static std::size_t blocks(const Layout& side) {
    return round_up(std::size_t(side.channels), kTile) / kTile;
  }
  const Layout& left() const { return there_ ? c_.output : c_.input; }
  const Layout& right() const { return there_ ? c_.input : c_.output; }
  std::size_t left_tiles() const { return blocks(left()) * taps_; }
  std::size_t right_blocks() const { return blocks(right()); }

  std::size_t grids_right() const {
    return std::size_t(std::min(window_.columns.count, window_.columns.stride));
  }
  std::size_t grids() const {
    return std::size_t(std::min(window_.rows.count, window_.rows.stride)) * grids_right();
  }
  Grid grid_of_x(std::size_t index) const {
    return {int(index / grids_right()) - window_.rows.padding,
            int(index % grids_right()) - window_.columns.padding, window_.rows.stride,
            window_.columns.stride};
  }

  std::size_t plane_numbers() const {
    return grids() * blocks(left()) * kTile * plane_;
  }
  std::size_t pair_numbers() const { return right_blocks() * chunks_ * kTilePack; }
  Bf16* planes(const Operands& operands) const { return reinterpret_cast<Bf16*>(operands.shared); }
  Bf16* pairs(const Operands& operands) const { return planes(operands) + plane_numbers(); }
  float* sums(const Operands& operands) const {
    return operands.shared + (plane_numbers() + pair_numbers()) / 2;
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

  void spread_planes(const Operands& operands, Share share) const {
    const std::size_t height = std::size_t(c_.output.height) + reach(window_.rows);
    each_run(grids() * blocks(left()), height, share, [&](std::size_t group, int y, int x, bool last) {
      const Grid grid = there_ ? Grid{} : grid_of_x(group / blocks(left()));
      const float* const image = there_ ? operands.dy : operands.x;
      Bf16* const to = planes(operands) + group * kTile * plane_;
      pack_planes(pixels(image, left(), grid, group % blocks(left()), y, x), run_length(x),
                  to + std::size_t(y) * pitch_ + x, plane_);
      for (std::size_t c = 0; last && c < kTile; ++c)
        std::fill(to + c * plane_ + height * pitch_, to + (c + 1) * plane_, Bf16(0));
    });
  }

  void spread_pairs(const Operands& operands, Share share) const {
    const auto height = std::size_t(c_.output.height);
    each_run(right_blocks(), height, share, [&](std::size_t block, int y, int x, bool last) {
      const Grid grid = there_ ? grid_of_x(0) : Grid{};
      const float* const image = there_ ? operands.x : operands.dy;
      Bf16* const to = pairs(operands) + block * chunks_ * kTilePack;
      pack_pairs(pixels(image, right(), grid, block, y, x), run_length(x),
                 to + (std::size_t(y) * pitch_ + x) * kTile);
      if (last) std::fill(to + height * pitch_ * kTile, to + chunks_ * kTilePack, Bf16(0));
    });
  }

  /// Calls pack(group, y, first x, whether it is the group's last) for a share of all runs of 32
  /// pixels.
  template <class Pack>
  void each_run(std::size_t groups, std::size_t height, Share share, const Pack& pack) const {
    const std::size_t across = round_up(pitch_, kDeep) / kDeep, of_group = height * across;
    const auto [begin, end] = share.of(groups * of_group);
    for (std::size_t i = begin; i < end; ++i)
      pack(i / of_group, int(i / across % height), int(i % across * kDeep),
           (i + 1) % of_group == 0);
  }
  int run_length(int x) const { return int(std::min(kDeep, pitch_ - std::size_t(x))); }

  /// Threads share the sums, each made of all pixels in one order.
  void sum_up(const Operands& operands, Share share) const {
    const Tiles tiles;
    const std::size_t left_pairs = (left_tiles() + 1) / 2, right_pairs = (right_blocks() + 1) / 2;
    const auto [begin, end] = share.of(left_pairs * right_pairs);
    for (std::size_t chunk = 0; chunk < chunks_; chunk += kChunks) {
      for (std::size_t i = begin; i < end; ++i)
        tiles.multiply(products(operands, i % left_pairs * 2, i / left_pairs * 2, chunk));
    }
  }
  TileProducts products(const Operands& operands, std::size_t tile, std::size_t block,
                        std::size_t chunk) const {
    TileProducts p{.left_line = plane_, .chunks = int(std::min(kChunks, chunks_ - chunk))};
    p.accumulate = chunk > 0 || (there_ && c_.accumulate);
    p.sums_line = there_ ? std::size_t(c_.input.channels) : kTile;
    float* const sums = there_ ? operands.weight_gradient : this->sums(operands);
    const std::size_t of_tile = there_ ? kTile * p.sums_line : right_blocks() * kTile * kTile;
    const std::size_t of_block = there_ ? kTile : kTile * kTile;
    for (std::size_t t = tile; t < std::min(tile + 2, left_tiles()); ++t) {
      p.left[t - tile] = planes(operands) + place_of(t) + chunk * kDeep;
      for (std::size_t b = block; b < std::min(block + 2, right_blocks()); ++b)
        p.sums[t - tile][b - block] = sums + t * of_tile + b * of_block;
    }
    for (std::size_t b = block; b < std::min(block + 2, right_blocks()); ++b)
      p.right[b - block] = pairs(operands) + (b * chunks_ + chunk) * kTilePack;
    return p;
  }
  /// Where a left tile, a block of channels' tap, begins in the planes.
  std::size_t place_of(std::size_t tile) const {
    const auto &rows = window_.rows, &columns = window_.columns;
    const int tap = int(tile % taps_), y = tap / columns.count, x = tap % columns.count;
    const std::size_t grid = std::size_t(y % rows.stride) * grids_right() + x % columns.stride;
    return (grid * blocks(left()) + tile / taps_) * kTile * plane_ +
           std::size_t(y / rows.stride) * pitch_ + std::size_t(x / columns.stride);
  }

  void unpack(const Operands& operands, Share share) const {
    const std::size_t row = taps_ * c_.input.channels;
    const auto [begin, end] = share.of(places_.size(), kTile);
    for (std::size_t o = 0; o < std::size_t(c_.output.channels); o += kTile) {
      from_lanes(sums(operands) + o * kTile, std::span(places_).subspan(begin, end - begin),
                 operands.weight_gradient + o * row + begin, row,
                 std::min(kTile, std::size_t(c_.output.channels) - o), c_.accumulate);
    }
  }

  const Convolution c_;
  const TapGrid window_;
  const std::size_t taps_;
  const bool there_;
  const std::size_t pitch_, chunks_;  ///< of a row of dy, of all its pixels
  std::size_t plane_ = 0;
  std::vector<std::uint32_t> places_;  ///< for from_lanes
};

}  // namespace

std::unique_ptr<Kernel> own_bf16_weights(const Convolution& convolution) {
  return std::make_unique<Bf16WeightGradient>(convolution);
}

}  // namespace millrace::kernels
