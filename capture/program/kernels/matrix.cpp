// Products of matrices, and convolutions of one tap as such: of a pixel's channels with the
// weights, and for the weights' gradient of a channel's pixels with those of the other side.
#include <algorithm>

#include "capture/program/kernels/internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/matrix.cpp"
#include <hwy/foreach_target.h>

#include "capture/program/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

/// R rows of C vectors, complex or real.
template <bool kComplex, bool kAccumulate, int R, int C>
HWY_INLINE void product(const Products& p, int row, int column) {
  const D d;
  constexpr int kParts = kComplex ? 2 : 1;
  V sums[kParts][R][C];
#pragma GCC unroll 32
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) {
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) sums[part][r][c] = hn::Zero(d);
    }
  }
  const float* HWY_RESTRICT a = p.a + row * p.a_row;
  const float* HWY_RESTRICT b = p.b + column * kLanes;
  for (int k = 0; k < p.depth; ++k, a += p.a_k, b += p.b_k) {
    V re[C], im[C];
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) {
      re[c] = hn::LoadU(d, b + c * kLanes);
      if constexpr (kComplex) im[c] = hn::LoadU(d, b + p.b_imaginary + c * kLanes);
    }
#pragma GCC unroll 32
    for (int r = 0; r < R; ++r) {
      const V x = hn::Set(d, a[r * p.a_row]);
#pragma GCC unroll 2
      for (int c = 0; c < C; ++c) sums[0][r][c] = hn::MulAdd(x, re[c], sums[0][r][c]);
      if constexpr (kComplex) {
        const V y = hn::Set(d, a[r * p.a_row + p.a_imaginary]);
#pragma GCC unroll 2
        for (int c = 0; c < C; ++c) {
          sums[1][r][c] = hn::NegMulAdd(x, im[c], sums[1][r][c]);
          sums[0][r][c] = hn::MulAdd(y, im[c], sums[0][r][c]);
          sums[1][r][c] = hn::MulAdd(y, re[c], sums[1][r][c]);
        }
      }
    }
  }
  float* const to = p.c + row * p.c_row + column * kLanes;
#pragma GCC unroll 32
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) {
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) {
        float* const total = to + part * p.c_imaginary + r * p.c_row + c * kLanes;
        const V sum = sums[part][r][c];
        hn::StoreU(kAccumulate ? hn::Add(hn::LoadU(d, total), sum) : sum, d, total);
      }
    }
  }
}

/// Rows from `row` on, R at a time, then fewer.
template <bool kComplex, bool kAccumulate, int R, int C>
HWY_NOINLINE void product_rows(const Products& given, int row, int column) {
  const Products p = given;  // which no store can change
  for (; row + R <= p.rows; row += R) product<kComplex, kAccumulate, R, C>(p, row, column);
  if constexpr (R > 1) {
    if (row < p.rows)
      product_rows<kComplex, kAccumulate, R % 3 == 0 ? R * 2 / 3 : R / 2, C>(given, row, column);
  }
}

template <bool kComplex, bool kAccumulate>
void product_columns(const Products& p) {
  // Twelve sums fill 16 registers.
  constexpr int kSums = HWY_TARGET == HWY_AVX3 ? 24 : 12, kWide = kComplex ? 1 : 2;
  int column = 0;
  for (; column + kWide <= p.vectors; column += kWide)
    product_rows<kComplex, kAccumulate, kSums / 2, kWide>(p, 0, column);
  if (column < p.vectors) product_rows<kComplex, kAccumulate, kSums / 2, 1>(p, 0, column);
}

void products(const Products& p) {
  if (p.complex) {
    p.accumulate ? product_columns<true, true>(p) : product_columns<true, false>(p);
  } else {
    p.accumulate ? product_columns<false, true>(p) : product_columns<false, false>(p);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(products);

void products(const Products& p) {
  HWY_DYNAMIC_DISPATCH(products)(p);
}

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
class MatrixKernel final : public Kernel {
 public:
  explicit MatrixKernel(const Convolution& c) : c_(c) {
    rows_ = std::size_t(c.output.height) * c.output.width;
    depth_ = source_of(c).channels;
    columns_ = made_by(c).channels;
    if (of_weights()) std::swap(rows_, depth_);
    most_depth_ = std::min(depth_, kDepth);
    const std::size_t floats = width_ * (most_depth_ + (in_parts() ? rows_ : 0));
    block_ = std::clamp<std::size_t>(kBlockFloats / floats, 1, panels());
    for (std::size_t k = 0; k < most_depth_; ++k) places_.push_back(std::uint32_t(k * width_));
  }

  std::size_t scratch_floats() const override {
    return block_ * of_panel() + (in_parts() ? block_ * rows_ : kRows) * width_;
  }
  std::size_t shared_floats(int) const override { return spreads() ? lines() * (line() + 16) : 0; }
  int phases(int) const override { return spreads() ? 2 : 1; }

  void run(const Operands& operands, int phase, Share share) const override {
    if (spreads() && phase == 0) return spread(operands, share);
    const Share whole;
    const bool by_rows = rows_ >= 4 * kRows * std::size_t(share.count) || panels() == 1;
    const auto [row, last_row] = (by_rows ? share : whole).of(rows_, 4);
    const auto [panel, last_panel] = (by_rows ? whole : share).of(panels());
    for (std::size_t p = panel; p < last_panel; p += block_)
      make_panels(operands, p, std::min(p + block_, last_panel), row, last_row);
    bias_gradient(c_, operands, share);
  }

 private:
  bool of_weights() const { return c_.pass == Pass::kWeightGradient; }
  std::size_t panels() const { return (columns_ + width_ - 1) / width_; }
  std::size_t of_panel() const { return most_depth_ * width_; }

  /// Whether the right side is read where it lies: whole vectors, in the sums' order.
  bool reads_there() const { return of_weights() && columns_ % lanes() == 0; }
  /// Whether the sums are the result.
  bool sums_there(const Operands& operands) const {
    return columns_ % lanes() == 0 && !operands.mask && !operands.bias &&
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
      std::copy_n(operands.source + i * line(), line(), operands.shared + i * (line() + 16));
  }

  /// Panels [panel, last_panel) of rows [row, last_row).
  void make_panels(const Operands& operands, std::size_t panel, std::size_t last_panel,
                   std::size_t row, std::size_t last_row) const {
    const std::size_t of_line = line() + (spreads() ? 16 : 0);
    const float* const left = spreads() ? operands.shared : operands.source;
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
          p.c = sums_there ? operands.made + r * columns_ + column
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
    if (forward(c_)) {
      for (std::size_t c = panel * width_; c < last_column; c += lanes()) {
        to_lanes(operands.weights + c * depth_ + k, depth_, std::min(lanes(), last_column - c),
                 std::span(places_).first(depth),
                 operands.scratch + (c / width_ - panel) * of_panel() + c % width_);
      }
      return;
    }
    const float* const from = (of_weights() ? operands.x : operands.weights) + k * columns_;
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
                 .bias = operands.bias ? operands.bias + column : nullptr,
                 .activation = c_.activation,
                 .mask = operands.mask ? operands.mask + at : nullptr,
                 .accumulate = c_.accumulate,
                 .to = operands.made + at,
                 .row = columns_,
                 .rows = std::size_t(p.rows),
                 .count = count});
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

std::unique_ptr<Kernel> make_matrix(const Convolution& convolution) {
  return std::make_unique<MatrixKernel>(convolution);
}

}  // namespace millrace::kernels
#endif
