// Convolutions of one tap as products of matrices: of a pixel's channels with the weights, and for
// the weights' gradient of a channel's pixels with those of the other side.
#include <algorithm>

#include "capture/program/kernels/own.h"
#include "capture/program/kernels/simd.h"
#include "capture/program/kernels/transformed.h"

namespace millrace::kernels {
namespace {

/// Of the sums' depth at a time: long sums are made of short ones.
constexpr std::size_t kDepth = 512;
/// Rows of the result at a time.
constexpr std::size_t kRows = 48;
/// Of the right side at a time, so that it stays in the core's own cache.
constexpr std::size_t kBlockFloats = 64 << 10;
constexpr std::size_t kAhead = 8;  ///< rows

/// result [rows][columns] = left [rows][depth] times right [depth][columns], of which some panels
/// of columns are packed at a time.
class OwnMatrix final : public Kernel {
 public:
  explicit OwnMatrix(const Convolution& c) : c_(c) {
    const std::size_t in = c.input.channels, out = c.output.channels;
    const std::size_t pixels = std::size_t(c.output.height) * c.output.width;
    switch (c.pass) {
      case Pass::kForward:
        rows_ = pixels, depth_ = in, columns_ = out;
        break;
      case Pass::kDataGradient:
        rows_ = pixels, depth_ = out, columns_ = in;
        break;
      case Pass::kWeightGradient:
        rows_ = out, depth_ = pixels, columns_ = in;
        break;
    }
    most_depth_ = std::min(depth_, kDepth);
    const std::size_t floats = width_ * (most_depth_ + (in_parts() ? rows_ : 0));
    block_ = std::clamp<std::size_t>(kBlockFloats / floats, 1, panels());
    for (std::size_t k = 0; k < most_depth_; ++k) places_.push_back(std::uint32_t(k * width_));
  }

  std::string name() const override { return kMatrix; }
  std::size_t packed_floats() const override { return 0; }
  std::size_t scratch_floats() const override {
    return block_ * of_panel() + (in_parts() ? block_ * rows_ : kRows) * width_;
  }
  std::size_t shared_floats(int) const override { return spreads() ? lines() * (line() + 16) : 0; }
  void pack(const float*, float*, Share) const override {}
  int phases(int) const override { return spreads() ? 2 : 1; }

  void run(const Operands& operands, int phase, Share share) const override {
    if (spreads() && phase == 0) return spread(operands, share);
    const Share whole;
    const bool by_rows = rows_ >= 4 * kRows * std::size_t(share.count) || panels() == 1;
    const auto [row, last_row] = (by_rows ? share : whole).of(rows_, 4);
    const auto [panel, last_panel] = (by_rows ? whole : share).of(panels());
    for (std::size_t p = panel; p < last_panel; p += block_)
      make_panels(operands, p, std::min(p + block_, last_panel), row, last_row);
    if (!operands.bias_gradient) return;
    const auto [first, last] = share.of(c_.output.channels, lanes());
    channel_sums(operands.dy, c_.output, first, last, operands.bias_gradient, c_.accumulate);
  }

 private:
  bool of_weights() const { return c_.pass == Pass::kWeightGradient; }
  std::size_t panels() const { return (columns_ + width_ - 1) / width_; }
  std::size_t of_panel() const { return most_depth_ * width_; }

  /// Whether the right side is read where it lies: whole vectors, in the sums' order.
  bool reads_there() const { return of_weights() && columns_ % lanes() == 0; }
  /// Whether the sums are the result.
  bool sums_there(const Operands& operands) const {
    return columns_ % lanes() == 0 && !c_.masked && !bias_of(operands) &&
           c_.activation == Activation::kNone;
  }
  /// Whether sums wait for their next part, which is why there is one for each row.
  bool in_parts() const { return depth_ > kDepth; }

  // The left side as it lies: a line of channels a pixel.
  std::size_t line() const { return of_weights() ? rows_ : depth_; }
  std::size_t lines() const { return of_weights() ? depth_ : rows_; }
  /// Lines of whole pages would compete for one place of the cache: a copy has them apart.
  bool spreads() const { return !of_weights() && depth_ % 512 == 0 && rows_ > 8; }
  void spread(const Operands& operands, Share share) const {
    const auto [begin, end] = share.of(lines());
    for (std::size_t i = begin; i < end; ++i)
      std::copy_n(left_of(operands) + i * line(), line(), operands.shared + i * (line() + 16));
  }

  /// Panels [panel, last_panel) of rows [row, last_row).
  void make_panels(const Operands& operands, std::size_t panel, std::size_t last_panel,
                   std::size_t row, std::size_t last_row) const {
    const std::size_t of_line = line() + (spreads() ? 16 : 0);
    const float* const left = spreads() ? operands.shared : left_of(operands);
    float* const sums = operands.scratch + block_ * of_panel();
    const bool sums_there = this->sums_there(operands);
    Products p{.b_k = reads_there() ? columns_ : width_, .c_row = sums_there ? columns_ : width_};
    p.a_row = of_weights() ? 1 : of_line;
    p.a_k = of_weights() ? of_line : 1;
    for (std::size_t k = 0; k < depth_; k += kDepth) {
      const std::size_t depth = std::min(kDepth, depth_ - k);
      if (!reads_there()) pack_panels(operands, k, depth, panel, last_panel);
      p.depth = int(depth);
      p.accumulate = k > 0 || (sums_there && c_.accumulate);
      for (std::size_t r = row; r < last_row; r += kRows) {
        p.a = left + r * p.a_row + k * p.a_k;
        p.rows = int(std::min(kRows, last_row - r));
        for (std::size_t i = panel; i < last_panel; ++i) {
          const std::size_t column = i * width_, count = std::min(width_, columns_ - column);
          p.b = reads_there() ? operands.x + k * columns_ + column
                              : operands.scratch + (i - panel) * of_panel();
          p.c = sums_there ? result_of(operands) + r * columns_ + column
                           : sums + (in_parts() ? (i - panel) * rows_ + r - row : 0) * width_;
          p.vectors = int(round_up(count, lanes()) / lanes());
          products(p);
          if (!sums_there && k + depth == depth_) finish(operands, p, r, column, count);
        }
      }
    }
  }

  /// The right side's rows [k, k + depth), zeros where a vector reaches beyond the last column.
  void pack_panels(const Operands& operands, std::size_t k, std::size_t depth, std::size_t panel,
                   std::size_t last_panel) const {
    const std::size_t last_column = std::min(last_panel * width_, columns_);
    if (c_.pass == Pass::kForward) {
      for (std::size_t c = panel * width_; c < last_column; c += lanes()) {
        to_lanes(operands.packed + c * depth_ + k, depth_, std::min(lanes(), last_column - c),
                 std::span(places_).first(depth),
                 operands.scratch + (c / width_ - panel) * of_panel() + c % width_);
      }
      return;
    }
    const float* const from = (of_weights() ? operands.x : operands.packed) + k * columns_;
    for (std::size_t i = 0; i < depth; ++i) {
      const float* const ahead = from + (i + kAhead) * columns_;
      for (std::size_t c = panel * width_; i + kAhead < depth && c < last_column; c += 16)
        __builtin_prefetch(ahead + c);
      for (std::size_t c = panel * width_; c < last_column; c += width_) {
        const std::size_t count = std::min(width_, last_column - c);
        float* const to = operands.scratch + (c / width_ - panel) * of_panel() + i * width_;
        std::copy_n(from + i * columns_ + c, count, to);
        std::fill(to + count, to + round_up(count, lanes()), 0.0f);
      }
    }
  }

  void finish(const Operands& operands, const Products& p, std::size_t row, std::size_t column,
              std::size_t count) const {
    const std::size_t at = row * columns_ + column;
    finish_rows({.values = p.c,
                 .values_row = width_,
                 .bias = bias_of(operands) ? operands.bias + column : nullptr,
                 .activation = c_.activation,
                 .mask = c_.masked ? operands.mask + at : nullptr,
                 .accumulate = c_.accumulate,
                 .to = result_of(operands) + at,
                 .row = columns_,
                 .rows = std::size_t(p.rows),
                 .count = count});
  }

  const float* bias_of(const Operands& operands) const {
    return c_.pass == Pass::kForward ? operands.bias : nullptr;
  }
  const float* left_of(const Operands& operands) const {
    return c_.pass == Pass::kForward ? operands.x : operands.dy;
  }
  float* result_of(const Operands& operands) const {
    return c_.pass == Pass::kForward        ? operands.y
           : c_.pass == Pass::kDataGradient ? operands.dx
                                            : operands.weight_gradient;
  }

  const Convolution c_;
  const std::size_t width_ = 2 * lanes();  ///< of a panel
  std::size_t rows_ = 0, depth_ = 0, columns_ = 0;
  std::size_t most_depth_ = 0;         ///< at a time
  std::size_t block_ = 0;              ///< panels at a time
  std::vector<std::uint32_t> places_;  ///< of a row's elements in a panel
};

}  // namespace

bool matrix_can_do(const Convolution& c) {
  return c.kernel == 1 && c.stride == 1;
}

/// Than the direct kernels. Measured over 40 shapes with 8 and with 16 lanes.
bool matrix_is_faster(const Convolution& c) {
  if (c.pass != Pass::kWeightGradient) return true;
  const std::size_t in = c.input.channels;
  return in >= (in % lanes() == 0 ? 2 : 8) * lanes();
}

std::unique_ptr<Kernel> own_matrix(const Convolution& convolution) {
  return std::make_unique<OwnMatrix>(convolution);
}

}  // namespace millrace::kernels
