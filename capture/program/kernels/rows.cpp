// Convolutions of few output pixels and many weights: products with the weight matrix, one row per
// output channel, one column per pixel. Weights are read once from memory in PyTorch's order, which
// takes longer than the arithmetic; their gradient needn't be stored at all.
#include <algorithm>
#include <tuple>
#include <type_traits>

#include "capture/program/kernels/internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/rows.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>

#include "capture/program/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels::HWY_NAMESPACE {

constexpr int kPixels = kManyRegisters ? 4 : 2;  ///< at a time, so that sums fit registers

/// w[o] = elements of row o, `row` elements apart.
template <int O>
HWY_INLINE void load_rows(const auto& e, const float* HWY_RESTRICT weights, std::size_t row,
                          V (&w)[O]) {
#pragma GCC unroll 8
  for (int o = 0; o < O; ++o) {
    w[o] = e.load(weights + std::size_t(o) * row);
    hwy::Prefetch(weights + e.at + std::size_t(o + O) * row);  // prefetch the next rows
  }
}

/// sums[p][o] = row o times column p, for O rows and P columns.
template <int O, int P>
HWY_INLINE void products(const Rows& r, std::size_t row, int pixel) {
  const float* HWY_RESTRICT weights = r.rows + row * r.row;
  const float* HWY_RESTRICT columns = r.columns + std::size_t(pixel) * r.row;
  V sums[O][P];
  clear(sums);
  each_vector(0, r.row, [&](const auto& e) HWY_ATTR {
    V w[O];
    load_rows(e, weights, r.row, w);
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      const V value = e.load(columns + std::size_t(p) * r.row);
#pragma GCC unroll 8
      for (int o = 0; o < O; ++o) sums[o][p] = hn::MulAdd(value, w[o], sums[o][p]);
    }
  });
  for (int p = 0; p < P; ++p) {
    for (int o = 0; o < O; ++o) {
      r.values[std::size_t(pixel + p) * r.channels + row + std::size_t(o)] =
          hn::GetLane(hn::SumOfLanes(d, sums[o][p]));
    }
  }
}

void row_products(const Rows& r) {
  constexpr int kRows = 4;
  const auto all_pixels = [&](auto rows, std::size_t row) {
    int p = 0;
    for (; p + kPixels <= r.pixels; p += kPixels) products<rows(), kPixels>(r, row, p);
    for (; p < r.pixels; ++p) products<rows(), 1>(r, row, p);
  };
  std::size_t row = r.begin;
  for (; row + kRows <= r.end; row += kRows) all_pixels(std::integral_constant<int, kRows>(), row);
  for (; row < r.end; ++row) all_pixels(std::integral_constant<int, 1>(), row);
}

/// columns[p] += sum over O rows of value[p][o] times row o, elements [begin, end) of a row.
template <int O, int P>
HWY_INLINE void add_rows(const Rows& r, std::size_t row, int pixel, std::size_t begin,
                         std::size_t end) {
  const float* HWY_RESTRICT weights = r.rows + row * r.row;
  const float* HWY_RESTRICT values = r.values + std::size_t(pixel) * r.channels + row;
  float* HWY_RESTRICT columns = r.columns + std::size_t(pixel) * r.row;
  each_vector(begin, end, [&](const auto& e) HWY_ATTR {
    V w[O];
    load_rows(e, weights, r.row, w);
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      float* const to = columns + std::size_t(p) * r.row;
      V sum = e.load(to);
#pragma GCC unroll 8
      for (int o = 0; o < O; ++o)
        sum =
            hn::MulAdd(hn::Set(d, values[std::size_t(p) * r.channels + std::size_t(o)]), w[o], sum);
      e.store(to, sum);
    }
  });
}

void row_sums(const Rows& r) {
  // Elements of a row at a time for which the pixels' parts stay in L1.
  constexpr std::size_t kCache = 6 << 10;
  constexpr int kRows = 8;
  for (int p = 0; p < r.pixels; ++p)
    std::fill(r.columns + std::size_t(p) * r.row + r.begin,
              r.columns + std::size_t(p) * r.row + r.end, 0.0f);
  const std::size_t part = round_up(std::max<std::size_t>(kCache / std::size_t(r.pixels), 1), 64);
  for (std::size_t begin = r.begin; begin < r.end; begin += part) {
    const std::size_t end = std::min(r.end, begin + part);
    const auto all_pixels = [&](auto rows, std::size_t row) {
      int p = 0;
      for (; p + kPixels <= r.pixels; p += kPixels)
        add_rows<rows(), kPixels>(r, row, p, begin, end);
      for (; p < r.pixels; ++p) add_rows<rows(), 1>(r, row, p, begin, end);
    };
    std::size_t row = 0;
    for (; row + kRows <= r.channels; row += kRows)
      all_pixels(std::integral_constant<int, kRows>(), row);
    for (; row < r.channels; ++row) all_pixels(std::integral_constant<int, 1>(), row);
  }
}

}  // namespace millrace::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(row_products);
HWY_EXPORT(row_sums);

namespace {

class RowsKernel final : public Kernel {
 public:
  explicit RowsKernel(const Convolution& c)
      : c_(c),
        taps_(std::size_t(c.kernel) * c.kernel),
        row_(taps_ * c.input.channels),
        of_column_(round_up(row_, 16)),
        pixels_(c.output.height * c.output.width) {}

  std::size_t scratch_floats() const override {
    if (c_.pass == Pass::kWeightGradient) return pixels() * of_column_ + kPart * kColumns;
    return pixels() * (row_ + std::size_t(c_.output.channels)) + c_.input.channels;
  }
  bool gives_parts() const override { return c_.pass == Pass::kWeightGradient; }

  void run(const Operands& operands, int, Share share) const override {
    if (c_.pass == Pass::kWeightGradient) return make_weights(operands, share);
    Rows r{.rows = operands.weights,
           .row = row_,
           .channels = std::size_t(c_.output.channels),
           .columns = operands.scratch,
           .values = operands.scratch + pixels() * row_,
           .pixels = pixels_};
    forward(c_) ? make_output(operands, r, share) : make_gradient(operands, r, share);
  }

 private:
  std::size_t pixels() const { return std::size_t(pixels_); }

  /// The offset of an input pixel.
  std::size_t at(int y, int x) const {
    return std::size_t(y) * c_.input.row() + std::size_t(x) * c_.input.channels;
  }

  /// Threads share the output channels.
  void make_output(const Operands& operands, Rows& r, Share share) const {
    std::tie(r.begin, r.end) = share.of(r.channels, 16);
    if (r.begin == r.end) return;
    unfold(c_, operands.source, r.columns, row_, {});
    HWY_DYNAMIC_DISPATCH(row_products)(r);
    finish_rows({.values = r.values + r.begin,
                 .values_row = r.channels,
                 .finish = finish_at(c_, operands, r.begin, r.begin),
                 .row = r.channels,
                 .rows = pixels(),
                 .count = r.end - r.begin});
  }

  /// Threads share the input channels.
  void make_gradient(const Operands& operands, Rows& r, Share share) const {
    const auto [begin, end] = share.of(std::size_t(c_.input.channels), 16);
    if (begin == end) return;
    r.begin = begin * taps_;
    r.end = end * taps_;
    std::copy_n(operands.source, c_.output.floats(), r.values);
    HWY_DYNAMIC_DISPATCH(row_sums)(r);
    // Sum each input pixel's gradients over the taps on it.
    float* const sum = r.values + pixels() * r.channels;
    for (int y = 0; y < c_.input.height; ++y) {
      for (int x = 0; x < c_.input.width; ++x) {
        std::fill(sum + begin, sum + end, 0.0f);
        for (int pixel = 0; pixel < pixels_; ++pixel) {
          const int row = y + c_.kernel / 2 - pixel / c_.output.width * c_.stride;
          const int column = x + c_.kernel / 2 - pixel % c_.output.width * c_.stride;
          if (row < 0 || column < 0 || row >= c_.kernel || column >= c_.kernel) continue;
          const float* from = r.columns + std::size_t(pixel) * row_ + row * c_.kernel + column;
          for (std::size_t i = begin; i < end; ++i) sum[i] += from[i * taps_];
        }
        finish_rows({.values = sum + begin,
                     .finish = finish_at(c_, operands, at(y, x) + begin, begin),
                     .count = end - begin});
      }
    }
  }

  /// Threads share the output channels. Computes a few at a time, in pieces that stay in L1.
  void make_weights(const Operands& operands, Share share) const {
    bias_gradient(c_, operands, share);
    const std::size_t channels = c_.output.channels;
    const auto [first, last] = share.of(channels, kPart);
    if (first == last) return;
    float *const columns = operands.scratch, *const part = columns + pixels() * of_column_;
    unfold(c_, operands.x, columns, of_column_, {});
    Products p{.transposed = true,
               .a_pitch = channels,
               .b_row = of_column_,
               .c = part,
               .c_row = kColumns,
               .depth = pixels_};
    for (std::size_t row = first; row < last; row += kPart) {
      p.a = operands.source + row;
      p.rows = int(std::min(kPart, last - row));
      for (std::size_t begin = 0; begin < row_; begin += kColumns) {
        const std::size_t count = std::min(kColumns, row_ - begin), at = row * row_ + begin;
        p.b = columns + begin;
        p.vectors = int(vectors_of(count));
        products(p);
        if (!operands.taker) {
          finish_rows({.values = part,
                       .values_row = kColumns,
                       .finish = {.to = operands.made + at},
                       .accumulate = c_.accumulate,
                       .row = row_,
                       .rows = std::size_t(p.rows),
                       .count = count});
          continue;
        }
        for (std::size_t r = 0; r < std::size_t(p.rows); ++r)
          operands.taker->take(part + r * kColumns, at + r * row_, count);
      }
    }
  }

  /// Of a weight gradient at a time: little enough for L1, in rows of a page, along which
  /// prefetchers follow an update. With 12 by 256 a step of ResNet-18 at 64 px takes 1.3 (sgd)
  /// to 1.5 times as long (adam).
  static constexpr std::size_t kPart = 6, kColumns = 1152;

  const Convolution c_;
  const std::size_t taps_, row_;
  const std::size_t of_column_;  ///< floats per column in whole vectors
  const int pixels_;
};

}  // namespace

/// Packing weights along channels takes longer than a few pixels' arithmetic.
bool rows_are_faster(const Convolution& c) {
  const int pixels = c.output.height * c.output.width;
  const double weights = double(c.input.channels) * c.output.channels * c.kernel * c.kernel;
  return pixels <= 16 && weights >= 1 << 15;
}

std::unique_ptr<Kernel> make_rows(const Convolution& convolution) {
  return std::make_unique<RowsKernel>(convolution);
}

}  // namespace millrace::kernels
#endif
