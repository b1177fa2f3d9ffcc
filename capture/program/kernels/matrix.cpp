// Matrix products, and 1x1 convolutions: a pixel's channels times the weights; for the weight
// gradient, a channel's pixels times those of the other side.
#include <algorithm>

#include "capture/program/kernels/internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/matrix.cpp"
#include <hwy/foreach_target.h>

#include "capture/program/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels::HWY_NAMESPACE {

/// R rows of C vectors, complex or real. Integer operations displace multiply-adds, so there are
/// few: an address is a base and up to twice a register, and three rows share a base.
template <bool kComplex, bool kTransposed, int R, int C>
HWY_INLINE void product(const Products& p, int row, int column) {
  constexpr int kParts = kComplex ? 2 : 1, kBases = kTransposed ? 1 : (R + 2) / 3;
  // In rows of complex elements, a vector's real parts are followed by its imaginary parts.
  constexpr bool kSplit = kComplex && !kTransposed;
  V sums[R][C][kParts];
#pragma GCC unroll 32
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) {
#pragma GCC unroll 2
      for (V& part : sums[r][c]) part = hn::Zero(d);
    }
  }
  const std::ptrdiff_t pitch = std::ptrdiff_t(p.a_pitch);
  const float* HWY_RESTRICT a[kBases];
#pragma GCC unroll 8
  for (int i = 0; i < kBases; ++i) {
    a[i] = p.a + (kTransposed ? (kComplex ? row / int(kLanes) * int(kLanes) : 0) + row
                              : (row + 3 * i) * pitch);
  }
  const float* HWY_RESTRICT b = p.b + column * kParts * int(kLanes);
  for (int k = 0; k < p.depth;) {
    for (const int end = kSplit ? std::min(k + int(kLanes), p.depth) : p.depth; k < end; ++k) {
      V re[C], im[C];
#pragma GCC unroll 2
      for (int c = 0; c < C; ++c) {
        re[c] = hn::LoadU(d, b + c * kParts * int(kLanes));
        if constexpr (kComplex) im[c] = hn::LoadU(d, b + (2 * c + 1) * int(kLanes));
      }
#pragma GCC unroll 32
      for (int r = 0; r < R; ++r) {
        const float* const at = kTransposed ? a[0] + r : a[r / 3] + r % 3 * pitch;
        const V x = hn::Set(d, *at);
#pragma GCC unroll 2
        for (int c = 0; c < C; ++c) sums[r][c][0] = hn::MulAdd(x, re[c], sums[r][c][0]);
        if constexpr (kComplex) {
          const V y = hn::Set(d, at[kLanes]);
#pragma GCC unroll 2
          for (int c = 0; c < C; ++c) {
            sums[r][c][1] = hn::NegMulAdd(x, im[c], sums[r][c][1]);
            sums[r][c][0] = hn::MulAdd(y, im[c], sums[r][c][0]);
            sums[r][c][1] = hn::MulAdd(y, re[c], sums[r][c][1]);
          }
        }
      }
#pragma GCC unroll 8
      for (int i = 0; i < kBases; ++i) a[i] += kTransposed ? pitch : 1;
      b += p.b_row;
    }
    if constexpr (kSplit) {
#pragma GCC unroll 8
      for (int i = 0; i < kBases; ++i) a[i] += kLanes;
    }
  }
  float* const to = p.c + row * p.c_row + column * kParts * int(kLanes);
  const auto finish = [&](const auto& finished) HWY_ATTR {
#pragma GCC unroll 32
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < C * kParts; ++i) {
        float* const total = to + r * p.c_row + i * int(kLanes);
        hn::StoreU(finished(sums[r][i / kParts][i % kParts], total), d, total);
      }
    }
  };
  if (p.accumulate) {
    finish([&](V sum, const float* total) HWY_ATTR { return hn::Add(hn::LoadU(d, total), sum); });
  } else {
    finish([](V sum, const float*) HWY_ATTR { return sum; });
  }
}

template <bool kComplex, bool kTransposed, int R, int C>
HWY_NOINLINE void product_rows(const Products& given, int row, int column) {
  const Products p = given;  // a copy that no store can alias
  for (; row + R <= p.rows; row += R) product<kComplex, kTransposed, R, C>(p, row, column);
  if constexpr (R > 1) {
    if (row < p.rows)
      product_rows<kComplex, kTransposed, R % 3 == 0 ? R * 2 / 3 : R / 2, C>(given, row, column);
  }
}

template <bool kComplex, bool kTransposed>
void product_columns(const Products& p) {
  // Twelve sums fill 16 registers.
  constexpr int kSums = kManyRegisters ? 24 : 12, kWide = kComplex ? 1 : 2;
  // Transposed complex rows lie within one vector.
  constexpr int kRows = kComplex && kTransposed ? std::min(kSums / 3, int(kLanes)) : kSums / 2;
  int column = 0;
  for (; column + kWide <= p.vectors; column += kWide)
    product_rows<kComplex, kTransposed, kRows, kWide>(p, 0, column);
  if (column < p.vectors) product_rows<kComplex, kTransposed, kRows, 1>(p, 0, column);
}

void products(const Products& p) {
  if (p.complex) {
    p.transposed ? product_columns<true, true>(p) : product_columns<true, false>(p);
  } else {
    p.transposed ? product_columns<false, true>(p) : product_columns<false, false>(p);
  }
}

}  // namespace millrace::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(products);

void products(const Products& p) {
  HWY_DYNAMIC_DISPATCH(products)(p);
}

namespace {

/// Depth summed at a time: long sums are split into short ones.
constexpr std::size_t kDepth = 512;
/// Rows of the result at a time, and whose sums wait for the next part of a long sum.
constexpr std::size_t kRows = 48, kWaitingRows = 5 * kRows;
/// Floats of the right side at a time, which stay in the core's own cache.
constexpr std::size_t kBlockFloats = 64 << 10;
/// Most floats of the right side, or rows of the left one, for which the right side is read in
/// place: copying it would take longer than it gains.
constexpr std::size_t kFloatsInPlace = 32 << 10, kRowsInPlace = 2 * kRows;
constexpr std::size_t kAhead = 8;  ///< rows

/// result [rows][columns] = left [rows][depth] times right [depth][columns], packed by panels.
class MatrixKernel final : public Kernel {
 public:
  explicit MatrixKernel(const Convolution& c) : c_(c) {
    rows_ = std::size_t(c.output.height) * c.output.width;
    depth_ = source_of(c).channels;
    columns_ = made_by(c).channels;
    if (of_weights()) std::swap(rows_, depth_);
    most_depth_ = std::min(depth_, kDepth);
    const std::size_t floats = width_ * (most_depth_ + (in_parts() ? kWaitingRows : 0));
    block_ = std::clamp<std::size_t>(kBlockFloats / floats, 1, panels());
    for (std::size_t k = 0; k < most_depth_; ++k) places_.push_back(std::uint32_t(k * width_));
  }

  std::size_t scratch_floats() const override {
    return left_floats() + block_ * (of_panel() + (in_parts() ? kWaitingRows : kRows) * width_);
  }

  void run(const Operands& operands, int, Share share) const override {
    const Share whole;
    const bool by_rows = rows_ >= 4 * kRows * std::size_t(share.count) || panels() == 1;
    const auto [begin, end] = (by_rows ? share : whole).of(rows_, 4);
    const auto [panel, last_panel] = (by_rows ? whole : share).of(panels());
    const std::size_t rows = in_parts() && !sums_there(operands) ? kWaitingRows : rows_;
    for (std::size_t p = panel; p < last_panel; p += block_) {
      for (std::size_t row = begin; row < end; row += rows)
        make_panels(operands, p, std::min(p + block_, last_panel), row, std::min(row + rows, end));
    }
    bias_gradient(c_, operands, share);
  }

 private:
  bool of_weights() const { return c_.pass == Pass::kWeightGradient; }
  std::size_t panels() const { return divided_up(columns_, width_); }
  std::size_t of_panel() const { return most_depth_ * width_; }
  const float* right(const Operands& operands) const {
    return of_weights() ? operands.x : operands.weights;
  }

  /// Whether the right side is read in place: whole vectors, in the order of the sums.
  bool reads_there() const {
    const bool small = depth_ * columns_ <= kFloatsInPlace;
    return !forward(c_) && columns_ % lanes() == 0 &&
           (small || (rows_ <= kRowsInPlace && !compete(columns_)));
  }
  /// Whether the sums are the final result.
  bool sums_there(const Operands& operands) const {
    return columns_ % lanes() == 0 && !operands.mask && !operands.bias &&
           c_.activation == Activation::kNone;
  }
  /// Whether sums wait for their next part, so that each row needs its own.
  bool in_parts() const { return depth_ > kDepth; }

  /// Whether lines of so many floats compete for a few of the cache's sets.
  static bool compete(std::size_t floats) { return floats % 512 == 0; }

  // The left side has a line of channels per pixel. What is summed at a time is copied if the lines
  // compete, or are many and far apart.
  std::size_t line() const { return of_weights() ? rows_ : depth_; }
  bool copies_left() const { return compete(line()) || (of_weights() && line() > 512); }
  std::size_t copied_line() const { return of_weights() ? kRows : most_depth_ + 16; }
  std::size_t left_floats() const {
    return copies_left() ? copied_line() * (of_weights() ? most_depth_ : kRows) : 0;
  }
  /// Returns the left side from row `row` and depth `k` on.
  const float* copied(const Operands& operands, std::size_t row, std::size_t rows, std::size_t k,
                      std::size_t depth) const {
    const std::size_t lines = of_weights() ? depth : rows, floats = of_weights() ? rows : depth;
    const float* from = operands.source + (of_weights() ? k * line() + row : row * line() + k);
    if (!copies_left()) return from;
    float* to = operands.scratch;
    for (std::size_t i = 0; i < lines; ++i, from += line(), to += copied_line()) {
      for (std::size_t at = 0; of_weights() && at < floats; at += 16)
        __builtin_prefetch(from + kAhead * line() + at);
      std::copy_n(from, floats, to);
    }
    return operands.scratch;
  }

  void make_panels(const Operands& operands, std::size_t panel, std::size_t last_panel,
                   std::size_t row, std::size_t last_row) const {
    float* const packed = operands.scratch + left_floats();
    float* const sums = packed + block_ * of_panel();
    const bool sums_there = this->sums_there(operands);
    Products p{.transposed = of_weights(),
               .a_pitch = copies_left() ? copied_line() : line(),
               .b_row = reads_there() ? columns_ : width_,
               .c_row = sums_there ? columns_ : width_};
    for (std::size_t k = 0; k < depth_; k += kDepth) {
      const std::size_t depth = std::min(kDepth, depth_ - k);
      if (!reads_there()) pack_panels(operands, k, depth, panel, last_panel, packed);
      p.depth = int(depth);
      p.accumulate = k > 0 || (sums_there && c_.accumulate);
      for (std::size_t r = row; r < last_row; r += kRows) {
        p.rows = int(std::min(kRows, last_row - r));
        p.a = copied(operands, r, std::size_t(p.rows), k, depth);
        for (std::size_t i = panel; i < last_panel; ++i) {
          const std::size_t column = i * width_, count = std::min(width_, columns_ - column);
          p.b = reads_there() ? right(operands) + k * columns_ + column
                              : packed + (i - panel) * of_panel();
          p.c = sums_there
                    ? operands.made + r * columns_ + column
                    : sums + (in_parts() ? (i - panel) * kWaitingRows + r - row : 0) * width_;
          p.vectors = int(vectors_of(count));
          products(p);
          if (!sums_there && k + depth == depth_) finish(operands, p, r, column, count);
        }
      }
    }
  }

  /// The right side's rows [k, k + depth), zeros beyond the last column.
  void pack_panels(const Operands& operands, std::size_t k, std::size_t depth, std::size_t panel,
                   std::size_t last_panel, float* packed) const {
    const std::size_t last_column = std::min(last_panel * width_, columns_);
    if (forward(c_)) {
      for (std::size_t c = panel * width_; c < last_column; c += lanes()) {
        to_lanes(operands.weights + c * depth_ + k, depth_, std::min(lanes(), last_column - c),
                 std::span(places_).first(depth),
                 packed + (c / width_ - panel) * of_panel() + c % width_);
      }
      return;
    }
    for (std::size_t c = panel * width_; c < last_column; c += width_, packed += of_panel()) {
      const float* const from = right(operands) + k * columns_ + c;
      const std::size_t count = std::min(width_, last_column - c), all = round_up(count, lanes());
      for (std::size_t i = 0; i < depth; ++i) {
        for (std::size_t line = 0; i + kAhead < depth && line < count; line += 16)
          __builtin_prefetch(from + (i + kAhead) * columns_ + line);
        float* const to = packed + i * width_;
        std::copy_n(from + i * columns_, count, to);
        std::fill(to + count, to + all, 0.0f);
      }
    }
  }

  void finish(const Operands& operands, const Products& p, std::size_t row, std::size_t column,
              std::size_t count) const {
    const std::size_t at = row * columns_ + column;
    finish_rows({.values = p.c,
                 .values_row = width_,
                 .finish = finish_at(c_, operands, at, column),
                 .accumulate = c_.accumulate,
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

/// Whether it beats the direct kernels. Measured over 40 shapes with 8 and with 16 lanes.
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
