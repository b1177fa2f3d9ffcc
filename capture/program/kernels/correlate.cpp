#include <algorithm>

#include "capture/program/kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/correlate.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Highway wants its own contributions after highway.h.
#include "capture/program/kernels/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

constexpr bool kManyRegisters = HWY_TARGET == HWY_AVX3;

/// Adds one source row to the sums of output rows kFirst..kLast of a tile.
/// `weights`: of kernel row (source row - kFirst); the later output rows use earlier kernel rows.
template <int kFirst, int kLast, int R, int P>
HWY_INLINE void add_source_row(const float* HWY_RESTRICT source, std::size_t step,
                               const float* HWY_RESTRICT weights, std::size_t weights_row, int taps,
                               V (&sums)[R][P]) {
  const D d;
  for (int t = 0; t < taps; ++t) {
    V w[kLast + 1];
#pragma GCC unroll 8
    for (int j = kFirst; j <= kLast; ++j)
      w[j] = hn::Load(d, weights + t * kLanes - (j - kFirst) * weights_row);
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) {
      const V value = hn::Set(d, source[p * step + t]);
#pragma GCC unroll 8
      for (int j = kFirst; j <= kLast; ++j) sums[j][p] = hn::MulAdd(value, w[j], sums[j][p]);
    }
  }
}

/// The kernel's first rows: source rows kLast.. that only the tile's upper output rows reach.
template <int kLast, int R, int P>
HWY_INLINE void add_first_rows(const float* source, const Correlation& c, const float* weights,
                               std::size_t weights_row, int begin, int end, V (&sums)[R][P]) {
  if constexpr (kLast < R - 1) {
    if (kLast >= begin && kLast < end)
      add_source_row<0, kLast>(source, c.pixel_step, weights, weights_row, c.taps, sums);
    add_first_rows<kLast + 1>(source + c.source_row, c, weights + weights_row, weights_row, begin,
                              end, sums);
  }
}

/// Its last rows, which only the lower output rows reach.
template <int kFirst, int R, int P>
HWY_INLINE void add_last_rows(const float* source, const Correlation& c, const float* weights,
                              std::size_t weights_row, int begin, int end, V (&sums)[R][P]) {
  if constexpr (kFirst < R) {
    const int row = c.kernel_rows - 1 + kFirst;
    if (row >= begin && row < end)
      add_source_row<kFirst, R - 1>(source, c.pixel_step, weights, weights_row, c.taps, sums);
    add_last_rows<kFirst + 1>(source + c.source_row, c, weights, weights_row, begin, end, sums);
  }
}

/// R x P output pixels at (y, x), channels from `channel` on. R > 1 wants R <= kernel_rows and
/// output rows that are neighbours in the source.
template <int R, int P>
HWY_NOINLINE void wide_tile(const Correlation& c, int y, int x, int channel, const float* weights) {
  const D d;
  const std::size_t weights_row = std::size_t(c.taps) * kLanes;
  const float* source = c.source + y * c.row_step * c.source_row + x * c.pixel_step;
  // Of the tile's source rows, those that hold values.
  const int top = c.top + y * c.row_step;
  const int begin = std::max(0, -top), end = c.source_height - top;
  V sums[R][P];
#pragma GCC unroll 8
  for (int j = 0; j < R; ++j) {
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) sums[j][p] = hn::Zero(d);
  }
  const auto at = [&](int j, int p) { return (y + j) * c.step_y + (x + p) * c.step_x + channel; };
  // What the end touches comes from afar while the sums are made.
#pragma GCC unroll 8
  for (int j = 0; j < R; ++j) {
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) {
      if (c.mask) hwy::Prefetch(c.mask + at(j, p));
      hwy::Prefetch(c.destination + at(j, p));
    }
  }
  add_first_rows<0>(source, c, weights, weights_row, begin, end, sums);
  for (int r = std::max(R - 1, begin); r < std::min(c.kernel_rows, end); ++r) {
    add_source_row<0, R - 1>(source + r * c.source_row, c.pixel_step, weights + r * weights_row,
                             weights_row, c.taps, sums);
  }
  add_last_rows<1>(source + c.kernel_rows * c.source_row, c,
                   weights + (c.kernel_rows - 1) * weights_row, weights_row, begin, end, sums);
  const std::size_t left = c.channels - channel;
  const auto part = first_lanes(left);
  const V bias = c.bias ? load_part(part, c.bias + channel) : hn::Zero(d);
#pragma GCC unroll 8
  for (int j = 0; j < R; ++j) {
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) {
      V v = activated(hn::Add(sums[j][p], bias), c.activation);
      if (c.mask)
        v = hn::IfThenZeroElse(hn::Le(load_part(part, c.mask + at(j, p)), hn::Zero(d)), v);
      float* to = c.destination + at(j, p);
      if (left >= kLanes) {
        hn::StoreU(v, d, to);
      } else {
        store_part(v, part, to);
      }
    }
  }
}

/// Calls tile(x) so that tiles of P, and of Q and 1 at the end, cover `width`. The last may overlap
/// the one before: it writes the same values again.
template <int P, int Q, typename Wide, typename Medium, typename Single>
HWY_INLINE void cover(int width, const Wide& wide, const Medium& medium, const Single& single) {
  int x = 0;
  for (; x + P <= width; x += P) wide(x);
  if (x == width) return;
  if (width - x <= Q && width >= Q) return medium(width - Q);
  if (width >= P) return wide(width - P);
  for (; x + Q <= width; x += Q) medium(x);
  if (x < width && width >= Q) return medium(width - Q);
  for (; x < width; ++x) single(x);
}

/// R rows of every channel, block by block, so that the source rows stay close.
template <int R, int P>
void wide_rows(const Correlation& c, int y) {
  constexpr int kHalf = P / 2;
  const float* weights = c.weights;
  for (int channel = 0; channel < c.channels; channel += kLanes, weights += c.weights_block) {
    cover<P, kHalf>(
        c.width, [&](int x) { wide_tile<R, P>(c, y, x, channel, weights); },
        [&](int x) { wide_tile<R, kHalf>(c, y, x, channel, weights); },
        [&](int x) { wide_tile<R, 1>(c, y, x, channel, weights); });
  }
}

void correlate_wide(const Correlation& c) {
  // Three rows meet each broadcast value; their tile fills the registers.
  constexpr int kRows = 3, kColumns = kManyRegisters ? 8 : 4, kSingle = kManyRegisters ? 16 : 8;
  int y = 0;
  const bool neighbours = c.row_step == 1 && c.kernel_rows >= kRows;
  if (neighbours) {
    // A single row left over costs more than two pairs.
    const int rest = c.height % kRows == 1 && c.height > kRows ? kRows + 1 : c.height % kRows;
    for (; y + rest < c.height; y += kRows) wide_rows<kRows, kColumns>(c, y);
    for (; y + 2 <= c.height; y += 2) wide_rows<2, kColumns>(c, y);
  }
  for (; y < c.height; ++y) wide_rows<1, kSingle>(c, y);
}

/// The sums of the lanes of four vectors, stored side by side.
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

/// The sums of the lanes, channels of a pixel side by side, zeros up to a multiple of four.
template <int O, int P>
HWY_INLINE void store_sums(const V (&sums)[O][P], float* to) {
  const auto sum = [&](int i) { return i < O * P ? sums[i % O][i / O] : hn::Zero(D()); };
#pragma GCC unroll 8
  for (int i = 0; i < O * P; i += 4)
    store_sums_of_four(sum(i), sum(i + 1), sum(i + 2), sum(i + 3), to + i);
}

/// P pixels, O channels.
template <int O, int P>
HWY_NOINLINE void narrow_tile(const Correlation& c, int y, int x, int channel) {
  const D d;
  const std::size_t vectors = (c.taps + kLanes - 1) / kLanes;
  const std::size_t of_channel = c.kernel_rows * vectors * kLanes;
  const float* source = c.source + y * c.row_step * c.source_row + x * c.pixel_step;
  const float* channel_weights = c.weights + channel * of_channel;
  const int top = c.top + y * c.row_step;
  const int begin = std::max(0, -top), end = std::min(c.kernel_rows, c.source_height - top);
  const auto part = first_lanes(c.taps - (vectors - 1) * kLanes);
  V sums[O][P];
#pragma GCC unroll 8
  for (int o = 0; o < O; ++o) {
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) sums[o][p] = hn::Zero(d);
  }
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
  float bias[O];
  for (int o = 0; o < O; ++o) bias[o] = c.bias ? c.bias[channel + o] : 0;
  store_sums<O, P>(sums, values);
  for (int i = 0; i < O * P; ++i) values[i] += bias[i % O];
  for (int i = 0; i < P * O; i += int(kLanes))
    hn::Store(activated(hn::Load(d, values + i), c.activation), d, values + i);
  for (int p = 0; p < P; ++p) {
    const std::size_t at = y * c.step_y + (x + p) * c.step_x + channel;
    float* to = c.destination + at;
    const float* mask = c.mask ? c.mask + at : nullptr;
    for (int o = 0; o < O; ++o) to[o] = mask && mask[o] <= 0 ? 0 : values[p * O + o];
  }
}

template <int O>
void narrow_channels(const Correlation& c, int channel) {
  constexpr int kPixels = kManyRegisters ? (O < 4 ? 8 : 6) : (O < 3 ? 4 : 3);
  for (int y = 0; y < c.height; ++y) {
    cover<kPixels, kPixels / 2>(
        c.width, [&](int x) { narrow_tile<O, kPixels>(c, y, x, channel); },
        [&](int x) { narrow_tile<O, kPixels / 2>(c, y, x, channel); },
        [&](int x) { narrow_tile<O, 1>(c, y, x, channel); });
  }
}

void correlate_narrow(const Correlation& c) {
  int channel = 0;
  for (; channel + 4 <= c.channels; channel += 4) narrow_channels<4>(c, channel);
  const int left = c.channels - channel;
  if (left == 3) narrow_channels<3>(c, channel);
  if (left == 2) narrow_channels<2>(c, channel);
  if (left == 1) narrow_channels<1>(c, channel);
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(correlate_wide);
HWY_EXPORT(correlate_narrow);

void correlate_wide(const Correlation& c) {
  HWY_DYNAMIC_DISPATCH(correlate_wide)(c);
}
void correlate_narrow(const Correlation& c) {
  HWY_DYNAMIC_DISPATCH(correlate_narrow)(c);
}

}  // namespace millrace::kernels
#endif
