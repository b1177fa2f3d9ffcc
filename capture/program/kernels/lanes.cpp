// Weights between PyTorch's order and vectors along the channels.
#include <algorithm>

#include "capture/program/kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Highway wants its own contributions after highway.h.
#include "capture/program/kernels/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

std::size_t lanes() {
  return kLanes;
}

const char* target_name() {
  return hwy::TargetName(HWY_TARGET);
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void transpose(V (&)[1]) {}
#else
/// Four vectors to four: block b of the i-th result holds element 4 b + i of each.
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
  const D d;
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
  const D d;
  const std::size_t count = places.size();
  if (count == 1 && stride == 1) {  // a column that lies as it should
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
  const D d;
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

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(lanes);
HWY_EXPORT(target_name);
HWY_EXPORT(to_lanes);
HWY_EXPORT(from_lanes);

std::size_t lanes() {
  return HWY_DYNAMIC_DISPATCH(lanes)();
}
std::string instruction_set() {
  return HWY_DYNAMIC_DISPATCH(target_name)();
}
bool has_vectors() {
  return lanes() > 1;
}

void to_lanes(const float* rows, std::size_t stride, std::size_t row_count,
              std::span<const std::uint32_t> places, float* packed) {
  HWY_DYNAMIC_DISPATCH(to_lanes)(rows, stride, row_count, places, packed);
}
void from_lanes(const float* packed, std::span<const std::uint32_t> places, float* rows,
                std::size_t stride, std::size_t row_count, bool add) {
  HWY_DYNAMIC_DISPATCH(from_lanes)(packed, places, rows, stride, row_count, add);
}

}  // namespace millrace::kernels
#endif
