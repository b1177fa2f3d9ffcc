// The machine's vectors and their speed, and helpers that kernels share: weights and images between
// PyTorch's order and vectors along the channels, finished rows of sums, sums of channels.
#include <algorithm>
#include <chrono>

#include "capture/program/kernels/internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/lanes.cpp"
#include <hwy/foreach_target.h>

#include "capture/program/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels::HWY_NAMESPACE {

std::size_t lanes() {
  return kLanes;
}

const char* target_name() {
  return hwy::TargetName(HWY_TARGET);
}

/// 12 chains of fused multiply-adds, `rounds` each. Returns the operations done.
double multiply_add(int rounds, float* result) {
  constexpr int kChains = 12;
  const V factor = hn::Set(d, result[0]), term = hn::Set(d, result[1]);
  V chains[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) chains[i] = hn::Set(d, result[0] * i);  // else one would do
  for (int i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (V& chain : chains) chain = hn::MulAdd(chain, factor, term);
  }
#pragma GCC unroll 16
  for (const V chain : chains) result[2] += hn::GetLane(chain);
  return 2.0 * kChains * kLanes * rounds;
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void transpose(V (&)[1]) {}
#else
/// Block b of the i-th result holds element 4 b + i of each of the four vectors.
HWY_INLINE void transpose_in_blocks(V& a, V& b, V& c, V& d) {
  const D f;
  const hn::RepartitionToWide<D> pairs;
  const auto low = [&](V x, V y) { return hn::BitCast(pairs, hn::InterleaveLower(f, x, y)); };
  const auto high = [&](V x, V y) { return hn::BitCast(pairs, hn::InterleaveUpper(f, x, y)); };
  const auto ab = low(a, b), cd = low(c, d), ab_high = high(a, b), cd_high = high(c, d);
  a = hn::BitCast(f, hn::InterleaveLower(pairs, ab, cd));
  b = hn::BitCast(f, hn::InterleaveUpper(pairs, ab, cd));
  c = hn::BitCast(f, hn::InterleaveLower(pairs, ab_high, cd_high));
  d = hn::BitCast(f, hn::InterleaveUpper(pairs, ab_high, cd_high));
}

/// Lane c of v[r] becomes lane r of v[c].
template <std::size_t kCount>
HWY_INLINE void transpose(V (&v)[kCount]) {
#pragma GCC unroll 4
  for (std::size_t i = 0; i < kCount; i += 4)
    transpose_in_blocks(v[i], v[i + 1], v[i + 2], v[i + 3]);
  if constexpr (kCount == 8) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      const V low = v[i], high = v[4 + i];
      v[i] = hn::ConcatLowerLower(d, high, low);
      v[4 + i] = hn::ConcatUpperUpper(d, high, low);
    }
  }
  if constexpr (kCount == 16) {
    const auto even = [](V a, V b) { return hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a); };
    const auto odd = [](V a, V b) { return hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a)); };
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      const V even01 = even(v[i], v[4 + i]), odd01 = odd(v[i], v[4 + i]);
      const V even23 = even(v[8 + i], v[12 + i]), odd23 = odd(v[8 + i], v[12 + i]);
      v[i] = hn::ConcatLowerLower(d, even23, even01);
      v[4 + i] = hn::ConcatLowerLower(d, odd23, odd01);
      v[8 + i] = hn::ConcatUpperUpper(d, even23, even01);
      v[12 + i] = hn::ConcatUpperUpper(d, odd23, odd01);
    }
  }
}
#endif

void to_lanes(const float* rows, std::size_t stride, std::size_t row_count,
              std::span<const std::uint32_t> places, float* packed) {
  const std::size_t count = places.size();
  if (count == 1 && stride == 1) {  // a column already in place
    const V v = load_part(first_lanes(row_count), rows);
    return hn::StoreU(v, d, packed + places[0]);
  }
  for (std::size_t q = 0; q < count; q += kLanes) {
    const auto part = first_lanes(count - q);
    V v[kLanes];
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kLanes; ++r)
      v[r] = r < row_count ? load_part(part, rows + r * stride + q) : hn::Zero(d);
    transpose(v);
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kLanes; ++i) {
      if (q + i < count) hn::StoreU(v[i], d, packed + places[q + i]);
    }
  }
}

void from_lanes(const float* packed, std::span<const std::uint32_t> places, float* rows,
                std::size_t stride, std::size_t row_count, bool add) {
  const std::size_t count = places.size();
  for (std::size_t q = 0; q < count; q += kLanes) {
    const auto part = first_lanes(count - q);
    V v[kLanes];
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kLanes; ++i)
      v[i] = hn::LoadU(d, packed + places[std::min(q + i, count - 1)]);
    transpose(v);
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kLanes; ++r) {
      if (r >= row_count) continue;
      float* to = rows + r * stride + q;
      if (add) v[r] = hn::Add(v[r], load_part(part, to));
      store_part(v[r], part, to);
    }
  }
}

void turn(const float* from, std::size_t rows, std::size_t columns, float* to) {
  constexpr int kFew = 4;
  if (rows <= kFew) {
    return with_constant<kFew>(int(rows), [&](auto n) HWY_ATTR {
      for (std::size_t c = 0; c < columns; ++c) {
        for (std::size_t r = 0; r < n; ++r) to[c * n + r] = from[r * columns + c];
      }
    });
  }
  if (columns <= kFew) {
    return with_constant<kFew>(int(columns), [&](auto n) HWY_ATTR {
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < n; ++c) to[c * rows + r] = from[r * n + c];
      }
    });
  }
  for (std::size_t r = 0; r < rows; r += kLanes) {
    const std::size_t row_count = std::min(rows - r, kLanes);
    const Lanes in_row = first_lanes(row_count);
    for (std::size_t q = 0; q < columns; q += kLanes) {
      const std::size_t count = std::min(columns - q, kLanes);
      const Lanes part = first_lanes(count);
      V v[kLanes];
#pragma GCC unroll 16
      for (std::size_t i = 0; i < kLanes; ++i)
        v[i] = i < row_count ? load_part(part, from + (r + i) * columns + q) : hn::Zero(d);
      transpose(v);
#pragma GCC unroll 16
      for (std::size_t i = 0; i < kLanes; ++i)
        if (i < count) store_part(v[i], in_row, to + (q + i) * rows + r);
    }
  }
}

void finish_rows(const FinishRows& given) {
  const FinishRows f = given;  // a copy that no store can alias
  const auto [bias, activation, mask, made] = f.finish;
  // finished(sum, a function that loads the mask or destination)
  const auto all_rows = [&](const auto& finished) HWY_ATTR {
    for (std::size_t r = 0; r < f.rows; ++r) {
      const float* const from = f.values + r * f.values_row;
      float* const to = made + r * f.row;
      const float* const with = mask ? mask + r * f.row : to;
      each_vector(0, f.count, [&](const auto& e) HWY_ATTR {
        const V v = e.load(from);
        e.store(to, finished(bias ? hn::Add(v, e.load(bias)) : v,
                             [&]() HWY_ATTR { return e.load(with); }));
      });
    }
  };
  if (f.accumulate && !mask) {
    all_rows([](V v, const auto& total) HWY_ATTR { return hn::Add(total(), v); });
  } else {
    with_finish(f.finish, all_rows);
  }
}

/// C vectors of channels. Four sums per row of pixels, one after another.
template <int C>
HWY_INLINE void sum_blocks(const float* source, const Layout& layout, std::size_t count,
                           float* sums, bool accumulate, float factor) {
  constexpr int kSums = 4;
  const Lanes part[] = {first_lanes(count), first_lanes(C == 1 ? 0 : count - kLanes)};
  V total[C];
#pragma GCC unroll 2
  for (V& sum : total) sum = hn::Zero(d);
  for (int y = 0; y < layout.height; ++y) {
    const float* from = source + y * layout.row();
    V row[kSums][C];
    clear(row);
    for (int x = 0; x < layout.width; x += kSums, from += kSums * layout.channels) {
#pragma GCC unroll 4
      for (int i = 0; i < kSums; ++i) {
        if (x + i >= layout.width) continue;
#pragma GCC unroll 2
        for (int c = 0; c < C; ++c) {
          row[i][c] =
              hn::Add(row[i][c], load_part(part[c], from + i * layout.channels + c * kLanes));
        }
      }
    }
#pragma GCC unroll 2
    for (int c = 0; c < C; ++c) {
      total[c] =
          hn::Add(total[c], hn::Add(hn::Add(row[0][c], row[1][c]), hn::Add(row[2][c], row[3][c])));
    }
  }
  for (int c = 0; c < C; ++c) {
    V made = hn::Mul(total[c], hn::Set(d, factor));
    if (accumulate) made = hn::Add(made, load_part(part[c], sums + c * kLanes));
    store_part(made, part[c], sums + c * kLanes);
  }
}

void sum_channels(const float* source, const Layout& layout, std::size_t begin, std::size_t end,
                  float* sums, bool accumulate, float factor) {
  std::size_t channel = begin;
  for (; channel + kLanes < end; channel += 2 * kLanes)
    sum_blocks<2>(source + channel, layout, end - channel, sums + channel, accumulate, factor);
  if (channel < end)
    sum_blocks<1>(source + channel, layout, end - channel, sums + channel, accumulate, factor);
}

}  // namespace millrace::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(lanes);
HWY_EXPORT(target_name);
HWY_EXPORT(to_lanes);
HWY_EXPORT(from_lanes);
HWY_EXPORT(turn);
HWY_EXPORT(finish_rows);
HWY_EXPORT(sum_channels);
HWY_EXPORT(multiply_add);

std::size_t lanes() {
  return HWY_DYNAMIC_DISPATCH(lanes)();
}
std::string instruction_set() {
  return HWY_DYNAMIC_DISPATCH(target_name)();
}
bool has_vectors() {
  return lanes() > 1;
}

double fma_peak() {
  using Clock = std::chrono::steady_clock;
  float values[3] = {0.5f, 1e-3f, 0};
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto begin = Clock::now();
    const double operations = HWY_DYNAMIC_DISPATCH(multiply_add)(100'000, values);
    best = std::max(best, operations / std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return values[2] > 0 ? best : 0;  // reading the result keeps the loop
}

void finish_rows(const FinishRows& f) {
  HWY_DYNAMIC_DISPATCH(finish_rows)(f);
}

void to_lanes(const float* rows, std::size_t stride, std::size_t row_count,
              std::span<const std::uint32_t> places, float* packed) {
  HWY_DYNAMIC_DISPATCH(to_lanes)(rows, stride, row_count, places, packed);
}
void from_lanes(const float* packed, std::span<const std::uint32_t> places, float* rows,
                std::size_t stride, std::size_t row_count, bool add) {
  HWY_DYNAMIC_DISPATCH(from_lanes)(packed, places, rows, stride, row_count, add);
}

void channel_sums(const Layout& layout, const float* source, float factor, float* sums, Share share,
                  bool accumulate) {
  const auto [begin, end] = share.of(std::size_t(layout.channels), lanes());
  HWY_DYNAMIC_DISPATCH(sum_channels)(source, layout, begin, end, sums, accumulate, factor);
}

void turn(const float* from, std::size_t rows, std::size_t columns, float* to) {
  HWY_DYNAMIC_DISPATCH(turn)(from, rows, columns, to);
}

}  // namespace millrace::kernels
#endif
