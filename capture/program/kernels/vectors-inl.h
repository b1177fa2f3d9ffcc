// Vectors of float, loops over them, and activations, once per instruction set: without a guard,
// since Highway includes each file of kernels, and with it this one, once for each.

#include <hwy/highway.h>
// Highway requires its contributions after highway.h.
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "capture/program/kernels/internal.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr D d;  ///< as Highway's functions take it
constexpr std::size_t kLanes = hn::MaxLanes(d);
constexpr bool kManyRegisters = HWY_TARGET == HWY_AVX3;  ///< else tiles are made for 16

/// The first `count` lanes of a vector. Memory beyond is neither read nor written (another thread
/// may be writing it), unlike by Highway's masked operations on processors without masks.
#if HWY_TARGET == HWY_AVX3
using Lanes = hn::Mask<D>;
HWY_INLINE Lanes first_lanes(std::size_t count) {
  return hn::FirstN(d, count);
}
HWY_INLINE V load_part(Lanes part, const float* from) {
  return hn::MaskedLoad(part, d, from);
}
HWY_INLINE void store_part(V v, Lanes part, float* to) {
  hn::BlendedStore(v, part, d, to);
}
HWY_INLINE V only_part(Lanes part, V v) {
  return hn::IfThenElseZero(part, v);
}
#else
struct Lanes {
  std::size_t count;
  hn::Mask<D> mask;
};
HWY_INLINE Lanes first_lanes(std::size_t count) {
  return {std::min(count, kLanes), hn::FirstN(d, count)};
}
/// With AVX2, a masked store takes AMD's processors 20 times as long as another one.
HWY_INLINE void store_part(V v, Lanes part, float* to) {
  if (part.count == kLanes) return hn::StoreU(v, d, to);
  if constexpr (kLanes > 1) {
    HWY_ALIGN float lanes[kLanes];
    hn::Store(v, d, lanes);
    const std::size_t fours = part.count & 4, twos = part.count & 2;
    if (fours) std::memcpy(to, lanes, 16);
    if (twos) std::memcpy(to + fours, lanes + fours, 8);
    if (part.count & 1) to[fours + twos] = lanes[fours + twos];
  }
}
HWY_INLINE V load_part(Lanes part, const float* from) {
#if HWY_TARGET != HWY_NEON
  return hn::MaskedLoad(part.mask, d, from);
#else
  if (part.count == kLanes) return hn::LoadU(d, from);
  HWY_ALIGN float lanes[kLanes] = {};
  for (std::size_t i = 0; i < part.count; ++i) lanes[i] = from[i];
  return hn::Load(d, lanes);
#endif
}
HWY_INLINE V only_part(Lanes part, V v) {
  return hn::IfThenElseZero(part.mask, v);
}
#endif

/// Elements of a buffer from `at` on: a vector or the last few. Some processors mask stores slowly.
struct Whole {
  std::size_t at;
  HWY_INLINE V load(const float* buffer) const { return hn::LoadU(d, buffer + at); }
  HWY_INLINE void store(float* buffer, V v) const { hn::StoreU(v, d, buffer + at); }
  HWY_INLINE V only(V v) const { return v; }
};
struct Rest {
  std::size_t at;
  Lanes part;
  HWY_INLINE V load(const float* buffer) const { return load_part(part, buffer + at); }
  HWY_INLINE void store(float* buffer, V v) const { store_part(v, part, buffer + at); }
  /// Zeros where there is no element.
  HWY_INLINE V only(V v) const { return only_part(part, v); }
};
/// Calls work() with elements [begin, end), vector by vector.
template <class Work>
HWY_INLINE void each_vector(std::size_t begin, std::size_t end, const Work& work) {
  for (; begin + kLanes <= end; begin += kLanes) work(Whole{begin});
  if (begin < end) work(Rest{begin, first_lanes(end - begin)});
}

/// Calls work(n as a std::integral_constant) if n is 1 to kMost.
template <int kMost, class Work>
HWY_INLINE void with_constant(int n, const Work& work) {
  if (n == kMost) return work(std::integral_constant<int, kMost>());
  if constexpr (kMost > 1) with_constant<kMost - 1>(n, work);
}

template <int R, int P>
HWY_INLINE void clear(V (&sums)[R][P]) {
#pragma GCC unroll 32
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 32
    for (int p = 0; p < P; ++p) sums[r][p] = hn::Zero(d);
  }
}

// What formulas for cores and GPUs are written in.
using Number = V;
HWY_INLINE V constant(double value) {
  return hn::Set(d, float(value));
}
HWY_INLINE V times_plus(V a, V b, V c) {
  return hn::MulAdd(a, b, c);
}
HWY_INLINE V minus_times(V a, V b, V c) {
  return hn::NegMulAdd(a, b, c);
}
HWY_INLINE V root_of(V v) {
  return hn::Sqrt(v);
}
HWY_INLINE V size_of(V v) {
  return hn::Abs(v);
}

HWY_INLINE V relu_of(V v) {  // keeps NaN, as LibTorch does
  return hn::IfThenZeroElse(hn::Lt(v, hn::Zero(d)), v);
}

HWY_INLINE V sigmoid_of(V v) {
  const V one = hn::Set(d, 1.0f);
  const V most = hn::Set(d, 104.0f);  // Exp is undefined beyond; here it is infinite
  const V made = hn::Div(one, hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(v), most))));
  return hn::IfThenElse(hn::IsNaN(v), v, made);  // Exp takes NaN for a small number
}

/// The gradient with respect to the sigmoid's input.
HWY_INLINE V sigmoid_gradient_of(V gradient, V made) {
  return hn::Mul(hn::Mul(gradient, hn::Sub(hn::Set(d, 1.0f), made)), made);
}

/// exp of values up to 0. Exp takes NaN for a small number.
HWY_INLINE V exp_below(V v) {
  return hn::IfThenElse(hn::IsNaN(v), v, hn::Exp(d, hn::Max(v, hn::Set(d, -104.0f))));
}

HWY_INLINE V activated(V v, Activation activation) {
  if (activation == Activation::kRelu) return relu_of(v);
  if (activation == Activation::kSigmoid) return sigmoid_of(v);
  return v;
}
HWY_INLINE V masked(V v, V mask) {
  return hn::IfThenZeroElse(hn::Le(mask, hn::Zero(d)), v);
}
/// Calls work(finished), where finished(sum + bias, a function that loads the mask) is the result.
template <class Work>
HWY_INLINE void with_finish(const Finish& f, const Work& work) {
  if (f.mask) {
    work([](V v, const auto& mask) HWY_ATTR { return masked(v, mask()); });
  } else if (f.activation == Activation::kRelu) {
    work([](V v, const auto&) HWY_ATTR { return relu_of(v); });
  } else if (f.activation == Activation::kSigmoid) {
    work([](V v, const auto&) HWY_ATTR { return sigmoid_of(v); });
  } else {
    work([](V v, const auto&) HWY_ATTR { return v; });
  }
}

}  // namespace millrace::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
