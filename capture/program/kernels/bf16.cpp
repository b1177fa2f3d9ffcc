// Forward and data gradient by products of bfloat16: for each row of the kernel, 16 neighbouring
// pixels' taps, which lie side by side in NHWC, times packed weights.
#include <algorithm>

#include "capture/program/kernels/bf16_tiles.h"
#include "capture/program/kernels/internal.h"

namespace millrace::kernels {
namespace {

/// Of the source at a time, so that it stays in the core's own cache for all weights.
constexpr std::size_t kCacheNumbers = 128 << 10;

/// Zeros that all pieces meet before and after a side of so many indices.
struct Border {
  Border(const std::vector<Axis>& axes, int size) {
    for (const Axis& a : axes) {
      before = std::max(before, -a.from);
      after = std::max(after, a.from + (a.size - 1) * a.pace + a.count - size);
    }
  }
  int before = 0, after = 0;
};

class Bf16Correlation final : public Kernel {
 public:
  explicit Bf16Correlation(const Convolution& given)
      : c_(in_one_row(given)),
        from_(source_of(c_)),
        to_(made_by(c_)),
        rows_(axes_of(c_.pass, window_of(c_).rows, to_.height)),
        columns_(axes_of(c_.pass, window_of(c_).columns, to_.width)),
        above_(rows_, from_.height),
        beside_(columns_, from_.width),
        height_(std::size_t(above_.before + from_.height + above_.after)),
        row_(std::size_t(beside_.before + from_.width + beside_.after) * from_.channels) {
    for (const Axis& rows : rows_) {
      for (const Axis& columns : columns_) add_piece(rows, columns);
    }
    for (std::size_t i = 0; i < offsets_.size(); i += kDeep) order_.push_back(i);
    std::sort(order_.begin(), order_.end(),
              [&](std::size_t a, std::size_t b) { return offsets_[a] < offsets_[b]; });
  }

  std::size_t scratch_floats() const override { return 4 * kTile * kTile; }
  std::size_t shared_floats(int) const override {
    return (image_numbers() + blocks() * offsets_.size() * kTile) / 2;
  }
  int phases(int) const override { return 2; }

  void run(const Operands& operands, int phase, Share share) const override {
    if (phase == 0) {
      round_source(operands.source, image(operands), share);
      return round_weights(operands.weights, weights(operands), share);
    }
    const Tiles tiles;
    for (const Piece& piece : pieces_) {
      const bool by_pixels = piece.tiles() >= 8 * std::size_t(share.count) || blocks() <= 2;
      const Share whole;
      const auto [begin, end] = (by_pixels ? share : whole).of(piece.tiles(), 2);
      const auto [block, last_block] = (by_pixels ? whole : share).of(blocks(), 2);
      const std::size_t of_tile = kTile * std::size_t(piece.columns.pace) * from_.channels;
      const std::size_t at_once = round_up(kCacheNumbers / of_tile + 1, 2);
      for (std::size_t t = begin; t < end; t += at_once) {
        for (std::size_t b = block; b < last_block; b += 2) {
          for (std::size_t i = t; i < std::min(end, t + at_once); i += 2)
            make(operands, tiles, piece, i, std::min(end, i + 2), b, std::min(last_block, b + 2));
        }
      }
    }
  }

 private:
  struct Piece {
    Axis rows, columns;
    int chunks = 0;           ///< of a kernel row's taps
    std::size_t weights = 0;  ///< numbers before its own in a block
    std::size_t tiles_across() const { return (std::size_t(columns.size) + kTile - 1) / kTile; }
    std::size_t tiles() const { return std::size_t(rows.size) * tiles_across(); }
  };

  std::size_t blocks() const { return round_up(std::size_t(to_.channels), kTile) / kTile; }
  /// Behind the last row is what a tile reads beyond it.
  std::size_t slack() const {
    return kTile * std::size_t(window_of(c_).columns.stride) * from_.channels + kDeep;
  }
  std::size_t image_numbers() const { return round_up(height_ * row_ + slack(), kDeep); }
  Bf16* image(const Operands& operands) const { return reinterpret_cast<Bf16*>(operands.shared); }
  Bf16* weights(const Operands& operands) const { return image(operands) + image_numbers(); }

  void add_piece(const Axis& rows, const Axis& columns) {
    const std::size_t in = c_.input.channels, width = window_of(c_).columns.count;
    const std::size_t taps = taps_of(window_of(c_)), channels = from_.channels;
    const std::size_t of_row = std::size_t(columns.count) * channels;
    const Piece piece{rows, columns, int(round_up(of_row, kDeep) / kDeep), offsets_.size() * kTile};
    for (int i = 0; i < rows.count; ++i) {
      for (std::size_t k = 0; k < round_up(of_row, kDeep); ++k) {
        const std::size_t tap = std::size_t(rows.first + rows.step * i) * width +
                                std::size_t(columns.first + columns.step * int(k / channels));
        const std::size_t place = k % channels * (forward(c_) ? 1 : in) * taps + tap;
        offsets_.push_back(k < of_row ? std::int32_t(place) : -1);
      }
    }
    pieces_.push_back(piece);
  }

  void round_source(const float* source, Bf16* to, Share share) const {
    const auto [begin, end] = share.of(height_);
    const std::size_t left = std::size_t(beside_.before) * from_.channels;
    for (std::size_t y = begin; y < end; ++y) {
      Bf16* const row = to + y * row_;
      const std::size_t from = y - std::size_t(above_.before);  // wraps above the first row
      const std::size_t filled = from < std::size_t(from_.height) ? left + from_.row() : left;
      std::fill(row, row + left, Bf16(0));
      if (filled > left) round_row(source + from * from_.row(), from_.row(), row + left);
      std::fill(row + filled, row + row_, Bf16(0));
    }
    if (end == height_) std::fill(to + height_ * row_, to + image_numbers(), Bf16(0));
  }

  /// A tile's lines of weights are output channels forward, input channels in the gradient.
  void round_weights(const float* weights, Bf16* to, Share share) const {
    const std::size_t taps = std::size_t(taps_of(window_of(c_))), in = c_.input.channels;
    const std::size_t line = taps * (forward(c_) ? in : 1);
    const auto [begin, end] = share.of(blocks() * order_.size());
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t channel = i / order_.size() * kTile, first = order_[i % order_.size()];
      const int lines = int(std::min(kTile, std::size_t(to_.channels) - channel));
      const float* const from = weights + channel * line;
      Bf16* const tile = to + (channel / kTile * offsets_.size() + first) * kTile;
      if (forward(c_) || taps > 1) {
        pack_weights(from, line, lines, &offsets_[first], tile);
      } else {  // lines lie side by side
        const int count = int(std::min(kDeep, from_.channels - first));
        pack_pairs({from + first * in, in, 0, count, lines}, int(kDeep), tile);
      }
    }
  }

  /// Tiles [tile, last_tile) of pixels, and blocks of channels, at most two of each.
  void make(const Operands& operands, const Tiles& tiles, const Piece& piece, std::size_t tile,
            std::size_t last_tile, std::size_t block, std::size_t last_block) const {
    const auto &rows = piece.rows, &columns = piece.columns;
    TileProducts p{.left_line = std::size_t(columns.pace) * from_.channels,
                   .left_part = row_,
                   .parts = rows.count,
                   .chunks = piece.chunks,
                   .sums_line = 2 * kTile};
    for (std::size_t t = tile; t < last_tile; ++t) {
      const auto [y, x] = place_of(piece, t);
      p.left[t - tile] =
          image(operands) + std::size_t(above_.before + y * rows.pace + rows.from) * row_ +
          std::size_t(beside_.before + x * columns.pace + columns.from) * from_.channels;
      for (std::size_t b = block; b < last_block; ++b)
        p.sums[t - tile][b - block] =
            operands.scratch + ((t - tile) * 2 * kTile + (b - block)) * kTile;
    }
    for (std::size_t b = block; b < last_block; ++b)
      p.right[b - block] = weights(operands) + b * offsets_.size() * kTile + piece.weights;
    tiles.multiply(p);
    const std::size_t channel = block * kTile;
    for (std::size_t t = tile; t < last_tile; ++t) {
      const auto [y, x] = place_of(piece, t);
      const std::size_t at = std::size_t(rows.to + y * rows.to_step) * to_.row() +
                             std::size_t(columns.to + x * columns.to_step) * to_.channels + channel;
      finish_rows({.values = p.sums[t - tile][0],
                   .values_row = p.sums_line,
                   .bias = operands.bias ? operands.bias + channel : nullptr,
                   .activation = c_.activation,
                   .mask = operands.mask ? operands.mask + at : nullptr,
                   .to = operands.made + at,
                   .row = std::size_t(columns.to_step) * to_.channels,
                   .rows = std::min(kTile, std::size_t(columns.size - x)),
                   .count = std::min(2 * kTile, std::size_t(to_.channels) - channel)});
    }
  }
  struct Place {
    int y, x;
  };
  static Place place_of(const Piece& piece, std::size_t tile) {
    return {int(tile / piece.tiles_across()), int(tile % piece.tiles_across() * kTile)};
  }

  const Convolution c_;
  const Layout from_, to_;
  const std::vector<Axis> rows_, columns_;
  const Border above_, beside_;
  const std::size_t height_, row_;  ///< of the rounded source; a row in numbers
  std::vector<Piece> pieces_;
  std::vector<std::int32_t> offsets_;  ///< of a block's weights in PyTorch's order
  std::vector<std::size_t> order_;     ///< of its tiles' first weights, as they lie there
};

}  // namespace

Convolution in_one_row(const Convolution& convolution) {
  Convolution c = convolution;
  const auto [rows, columns] = window_of(c);
  if (taps_of({rows, columns}) > 1 || rows.stride * columns.stride > 1 || rows.padding > 0 ||
      columns.padding > 0)
    return c;
  for (Layout* side : {&c.input, &c.output})
    *side = {1, side->height * side->width, side->channels};
  return c;
}

bool bf16_can_do(const Convolution& c) {
  const auto [rows, columns] = window_of(c);
  return c.precision == Precision::kBf16 && has_bf16() && lanes() == kTile && c.groups == 1 &&
         rows.dilation == 1 && columns.dilation == 1;
}

/// Than any kernel of float32. Fitted to some 90 shapes on a Xeon of 2023.
bool bf16_is_faster(const Convolution& c) {
  const int pixels = c.output.height * c.output.width;
  const int channels = std::min(c.input.channels, c.output.channels);
  if (channels >= int(kTile)) return pixels >= 32;
  return channels >= (c.pass == Pass::kWeightGradient ? 8 : 3) && pixels >= 256;
}

std::unique_ptr<Kernel> make_bf16(const Convolution& convolution) {
  return std::make_unique<Bf16Correlation>(convolution);
}

}  // namespace millrace::kernels
