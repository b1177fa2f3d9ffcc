// Convolutions to a few pixels: their weights lie in PyTorch's order, a row an output channel, and
// are read once from memory, which takes longer than the arithmetic.
#include <algorithm>
#include <type_traits>

#include "capture/program/kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/rows.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Highway wants its own contributions after highway.h.
#include "capture/program/kernels/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

constexpr int kPixels = HWY_TARGET == HWY_AVX3 ? 4 : 2;  ///< at a time, so that sums fit registers

/// w[o] = the elements of row o from `weights` on, rows being `row` elements apart.
template <int O>
HWY_INLINE void load_rows(const auto& load, const float* HWY_RESTRICT weights, std::size_t row,
                          V (&w)[O]) {
#pragma GCC unroll 8
  for (int o = 0; o < O; ++o) {
    w[o] = load(weights + std::size_t(o) * row);
    hwy::Prefetch(weights + std::size_t(o + O) * row);  // the next rows come from afar
  }
}

/// sums[p][o] = row o times column p, for O rows and P columns.
template <int O, int P>
HWY_INLINE void products(const Rows& r, std::size_t row, int pixel) {
  const D d;
  const float* HWY_RESTRICT weights = r.rows + row * r.row;
  const float* HWY_RESTRICT columns = r.columns + std::size_t(pixel) * r.row;
  V sums[O][P];
#pragma GCC unroll 8
  for (int o = 0; o < O; ++o) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) sums[o][p] = hn::Zero(d);
  }
  const auto add = [&](const auto& load, std::size_t k) HWY_ATTR {
    V w[O];
    load_rows(load, weights + k, r.row, w);
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      const V value = load(columns + std::size_t(p) * r.row + k);
#pragma GCC unroll 8
      for (int o = 0; o < O; ++o) sums[o][p] = hn::MulAdd(value, w[o], sums[o][p]);
    }
  };
  std::size_t k = 0;
  for (; k + kLanes <= r.row; k += kLanes)
    add([&](const float* from) HWY_ATTR { return hn::LoadU(d, from); }, k);
  if (k < r.row) {
    const auto part = first_lanes(r.row - k);
    add([&](const float* from) HWY_ATTR { return load_part(part, from); }, k);
  }
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
  const D d;
  const float* HWY_RESTRICT weights = r.rows + row * r.row;
  const float* HWY_RESTRICT values = r.values + std::size_t(pixel) * r.channels + row;
  float* HWY_RESTRICT columns = r.columns + std::size_t(pixel) * r.row;
  const auto add = [&](const auto& load, const auto& store, std::size_t k) HWY_ATTR {
    V w[O];
    load_rows(load, weights + k, r.row, w);
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      float* const to = columns + std::size_t(p) * r.row + k;
      V sum = load(to);
#pragma GCC unroll 8
      for (int o = 0; o < O; ++o)
        sum =
            hn::MulAdd(hn::Set(d, values[std::size_t(p) * r.channels + std::size_t(o)]), w[o], sum);
      store(sum, to);
    }
  };
  std::size_t k = begin;
  for (; k + kLanes <= end; k += kLanes) {
    add([&](const float* from) HWY_ATTR { return hn::LoadU(d, from); },
        [&](V v, float* to) HWY_ATTR { hn::StoreU(v, d, to); }, k);
  }
  if (k == end) return;
  const auto part = first_lanes(end - k);
  add([&](const float* from) HWY_ATTR { return load_part(part, from); },
      [&](V v, float* to) HWY_ATTR { store_part(v, part, to); }, k);
}

void row_sums(const Rows& r) {
  // So much of a row at a time that the pixels' parts stay in the first-level cache.
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

void finish_rows(const FinishRows& given) {
  const FinishRows f = given;  // which no store can change
  const D d;
  const std::size_t whole = f.count / kLanes * kLanes;
  const auto part = first_lanes(f.count - whole);
  const auto finish = [&](const auto& finished) HWY_ATTR {
    for (std::size_t r = 0; r < f.rows; ++r) {
      const float* const from = f.values + r * f.values_row;
      float* const to = f.to + r * f.row;
      const float* const with = f.mask ? f.mask + r * f.row : to;
      const auto sum = [&](const auto& load, std::size_t i) HWY_ATTR {
        const V v = load(from + i);
        return f.bias ? hn::Add(v, load(f.bias + i)) : v;
      };
      const auto load = [&](const float* p) HWY_ATTR { return hn::LoadU(d, p); };
      const auto load_last = [&](const float* p) HWY_ATTR { return load_part(part, p); };
      std::size_t i = 0;
      for (; i < whole; i += kLanes) hn::StoreU(finished(sum(load, i), load, with + i), d, to + i);
      if (i < f.count) store_part(finished(sum(load_last, i), load_last, with + i), part, to + i);
    }
  };
  if (f.mask) {
    finish([](V v, const auto& load, const float* mask)
               HWY_ATTR { return hn::IfThenZeroElse(hn::Le(load(mask), hn::Zero(D())), v); });
  } else if (f.accumulate) {
    finish([](V v, const auto& load, const float* total)
               HWY_ATTR { return hn::Add(load(total), v); });
  } else if (f.activation == Activation::kRelu) {
    finish([](V v, const auto&, const float*) HWY_ATTR { return relu_of(v); });
  } else if (f.activation == Activation::kSigmoid) {
    finish([](V v, const auto&, const float*) HWY_ATTR { return sigmoid_of(v); });
  } else {
    finish([](V v, const auto&, const float*) HWY_ATTR { return v; });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(row_products);
HWY_EXPORT(row_sums);
HWY_EXPORT(finish_rows);

void row_products(const Rows& r) {
  HWY_DYNAMIC_DISPATCH(row_products)(r);
}
void row_sums(const Rows& r) {
  HWY_DYNAMIC_DISPATCH(row_sums)(r);
}
void finish_rows(const FinishRows& f) {
  HWY_DYNAMIC_DISPATCH(finish_rows)(f);
}

}  // namespace millrace::kernels
#endif
