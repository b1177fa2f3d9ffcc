#include <algorithm>

#include "capture/program/kernels/internal.h"

#if defined(__x86_64__)
#include "capture/program/kernels/bf16_tiles.h"

namespace millrace::kernels {
namespace {

/// A 1x1 convolution that takes every pixel, with all pixels in one row.
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

std::size_t blocks(const Layout& side) {
  return divided_up(std::size_t(side.channels), kTile);
}

/// Numbers of the source at a time, which stay in the core's own cache for all weights.
constexpr std::size_t kCacheNumbers = 128 << 10;

/// Zeros needed before and after a side of `size` indices, over all pieces.
struct Border {
  Border(const std::vector<Axis>& axes, int size) {
    for (const Axis& a : axes) {
      before = std::max(before, -a.from);
      after = std::max(after, a.from + (a.size - 1) * a.pace + a.count - size);
    }
  }
  int before = 0, after = 0;
};

/// Forward and data gradient: a kernel row's taps of 16 adjacent pixels, times packed weights.
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
    return (image_numbers() + blocks(to_) * offsets_.size() * kTile) / 2;
  }
  int phases(int) const override { return 2; }

  void run(const Operands& operands, int phase, Share share) const override {
    if (phase == 0) {
      round_source(operands.source, image(operands), share);
      return round_weights(operands.weights, weights(operands), share);
    }
    const Tiles tiles;
    for (const Piece& piece : pieces_) {
      const bool by_pixels = piece.tiles() >= 8 * std::size_t(share.count) || blocks(to_) <= 2;
      const Share whole;
      const auto [begin, end] = (by_pixels ? share : whole).of(piece.tiles(), 2);
      const auto [block, last_block] = (by_pixels ? whole : share).of(blocks(to_), 2);
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
    std::size_t weights = 0;  ///< offset in a block
    std::size_t tiles_across() const { return divided_up(std::size_t(columns.size), kTile); }
    std::size_t tiles() const { return std::size_t(rows.size) * tiles_across(); }
  };

  /// A tile reads this far beyond the last row.
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
    const Piece piece{rows, columns, int(divided_up(of_row, kDeep)), offsets_.size() * kTile};
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

  /// A tile's lines are output channels in the forward pass, input channels in the gradient.
  void round_weights(const float* weights, Bf16* to, Share share) const {
    const std::size_t taps = std::size_t(taps_of(window_of(c_))), in = c_.input.channels;
    const std::size_t line = taps * (forward(c_) ? in : 1);
    const auto [begin, end] = share.of(blocks(to_) * order_.size());
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t channel = i / order_.size() * kTile, first = order_[i % order_.size()];
      const int lines = int(std::min(kTile, std::size_t(to_.channels) - channel));
      const float* const from = weights + channel * line;
      Bf16* const tile = to + (channel / kTile * offsets_.size() + first) * kTile;
      if (forward(c_) || taps > 1) {
        pack_weights(from, line, lines, &offsets_[first], tile);
      } else {  // contiguous lines
        const int count = int(std::min(kDeep, from_.channels - first));
        pack_pairs({from + first * in, in, 0, count, lines}, int(kDeep), tile);
      }
    }
  }

  /// Tiles [tile, last_tile) of pixels and blocks of channels, at most two of each.
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
                   .finish = finish_at(c_, operands, at, channel),
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
  const std::size_t height_, row_;  ///< of the rounded source, in rows; a row in numbers
  std::vector<Piece> pieces_;
  std::vector<std::int32_t> offsets_;  ///< of a block's weights, in PyTorch's order
  std::vector<std::size_t> order_;     ///< of its tiles' first weights, in that order
};

/// Numbers packed at a time, which stay in the core's own cache until used.
constexpr std::size_t kBandNumbers = 256 << 10;
/// Chunks of the pixels at a time, which stay in L1 for all taps.
constexpr std::size_t kChunks = 16;

std::size_t reach(const Taps& taps) {
  return std::size_t((taps.count - 1) / taps.stride);
}

/// Sums over pixels of dy's channels, in planes, times x's, in pixel pairs, which a tap shifts.
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
        chunks_(divided_up(pitch_ * band_, kDeep)),
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
    channel_sums(rows, operands.source + band * band_ * rows.row(), 1, operands.bias_gradient,
                 share, c_.accumulate || band > 0);
  }

 private:
  /// A picture of dy's pitch: dy, or the pixels of x for taps of one remainder by the stride.
  struct Grid {
    int row = 0, column = 0, down = 1, right = 1;  ///< first pixel and steps
  };

  std::size_t right_tiles() const { return inputs_ * taps_; }
  std::size_t bands() const { return divided_up(std::size_t(c_.output.height), band_); }
  std::size_t height_of(std::size_t band) const {
    return std::min(band_, std::size_t(c_.output.height) - band * band_);
  }

  // One picture of x per remainder; where single pixels shift it, a second, one pixel later.
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

  /// 32 pixels of a grid's row from column x on, for a block of channels.
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

  /// Calls pack(y, first x, block, whether it is the last) for a share of all 32-pixel runs.
  template <class Pack>
  void each_run(std::size_t height, std::size_t blocks, Share share, const Pack& pack) const {
    const std::size_t across = divided_up(pitch_, kDeep), runs = height * across;
    const auto [begin, end] = share.of(runs);
    for (std::size_t i = begin; i < end; ++i) {
      for (std::size_t block = 0; block < blocks; ++block)
        pack(int(i / across), int(i % across * kDeep), block, i + 1 == runs);
    }
  }
  int run_length(int x) const { return int(std::min(kDeep, pitch_ - std::size_t(x))); }

  /// Whether threads share only dy's channels: if many, with sums of few pixels, final at once.
  bool by_outputs(int threads) const {
    const std::size_t all = std::size_t(threads), pairs = (outputs_ + 1) / 2;
    return bands() == 1 && chunks_ <= kChunks && (pairs % all == 0 || pairs >= 4 * all);
  }

  /// Threads share the sums; each sum takes all pixels in one order.
  void sum_up(const Operands& operands, std::size_t band, Share share) const {
    const Tiles tiles;
    const std::size_t chunks = divided_up(pitch_ * height_of(band), kDeep);
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

  /// For up to two blocks of dy's channels by two right tiles.
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
  /// Where a right tile (a tap of a block of x's channels) begins among the pairs.
  std::size_t place_of(std::size_t tile) const {
    const auto &rows = window_.rows, &columns = window_.columns;
    const int tap = int(tile % taps_), y = tap / columns.count, x = tap % columns.count;
    const std::size_t shift = std::size_t(y / rows.stride) * pitch_ + x / columns.stride;
    const std::size_t remainder =
        std::size_t(y % rows.stride) * remainders_right() + x % columns.stride;
    return (remainder * copies() + shift % 2) * picture() + tile / taps_ * line_numbers() +
           shift / 2 * 2 * kTile;
  }

  /// Stores the sums of some blocks of dy's channels in PyTorch's order.
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
  const std::size_t taps_, outputs_, inputs_;  ///< in blocks of channels
  const bool there_;                           ///< whether the sums are laid out like the gradient
  const std::size_t pitch_, band_, chunks_;    ///< of a row of dy; rows at a time; their pixels
  const std::size_t plane_, line_;             ///< numbers per plane; pixels per picture
  std::vector<std::uint32_t> places_;          ///< for from_lanes
};

}  // namespace

std::unique_ptr<Kernel> make_bf16(const Convolution& convolution) {
  if (convolution.pass == Pass::kWeightGradient)
    return std::make_unique<Bf16WeightGradient>(convolution);
  return std::make_unique<Bf16Correlation>(convolution);
}

#else  // no tiles, and so no kernels

namespace millrace::kernels {

constexpr std::size_t kTile = 16;
static bool ask_for_tiles() {
  return false;
}
std::unique_ptr<Kernel> make_bf16(const Convolution&) {
  return nullptr;
}

#endif

bool has_bf16() {
  static const bool has = ask_for_tiles();
  return has;
}

bool bf16_can_do(const Convolution& c) {
  const auto [rows, columns] = window_of(c);
  return c.precision == Precision::kBf16 && has_bf16() && lanes() == kTile && c.groups == 1 &&
         rows.dilation == 1 && columns.dilation == 1;
}

/// Whether it beats every float32 kernel. Fitted to some 90 shapes on a Xeon of 2023.
bool bf16_is_faster(const Convolution& c) {
  const int pixels = c.output.height * c.output.width;
  const int channels = std::min(c.input.channels, c.output.channels);
  if (channels >= int(kTile)) return pixels >= 32;
  return channels >= (c.pass == Pass::kWeightGradient ? 8 : 3) && pixels >= 256;
}

}  // namespace millrace::kernels
