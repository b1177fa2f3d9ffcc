#include "capture/program/kernels/transformed.h"

#include <algorithm>

#include "capture/program/kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/transformed.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Highway wants its own contributions after highway.h.
#include "capture/program/kernels/transform-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

template <class Action>
void with(Transform transform, const Action& action) {
  switch (transform) {
    case Transform::kFft12:
      return action(Fourier<12>());
    case Transform::kFft20:
      return action(Fourier<20>());
    case Transform::kFft30:
      return action(Fourier<30>());
    case Transform::kWinograd43:
      return action(Winograd<4, 3>());
    case Transform::kWinograd63:
      return action(Winograd<6, 3>());
    case Transform::kWinograd45:
      return action(Winograd<4, 5>());
  }
}

void spread(Transform transform, Side side, const float* image, const Window& window,
            const Spectrum& to) {
  with(transform, [&](auto kind) { kind.spread(side, image, window, to); });
}
void gather(Transform transform, Side side, const Spectrum& from, const Finish& to,
            const Window& window) {
  with(transform, [&](auto kind) { kind.gather(side, from, to, window); });
}

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

HWY_EXPORT(spread);
HWY_EXPORT(gather);
HWY_EXPORT(products);

void spread(Transform transform, Side side, const float* image, const Window& window,
            const Spectrum& to) {
  HWY_DYNAMIC_DISPATCH(spread)(transform, side, image, window, to);
}
void gather(Transform transform, Side side, const Spectrum& from, const Finish& to,
            const Window& window) {
  HWY_DYNAMIC_DISPATCH(gather)(transform, side, from, to, window);
}
void products(const Products& p) {
  HWY_DYNAMIC_DISPATCH(products)(p);
}

}  // namespace millrace::kernels
#endif
