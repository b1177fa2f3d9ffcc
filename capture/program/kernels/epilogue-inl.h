// Vectors of float and the activations on them, once for each instruction set.
#if defined(MILLRACE_KERNELS_EPILOGUE) == defined(HWY_TARGET_TOGGLE)
#ifdef MILLRACE_KERNELS_EPILOGUE
#undef MILLRACE_KERNELS_EPILOGUE
#else
#define MILLRACE_KERNELS_EPILOGUE
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "capture/program/kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr std::size_t kLanes = hn::MaxLanes(D());

/// The first `count` lanes of a vector. What lies beyond them in memory is neither read nor
/// written: another thread may be writing it. Highway's own masked loads and stores do both where a
/// processor has none.
#if HWY_TARGET == HWY_NEON
struct Lanes {
  std::size_t count;
};
HWY_INLINE Lanes first_lanes(std::size_t count) {
  return {count < kLanes ? count : kLanes};
}
HWY_INLINE V load_part(Lanes part, const float* from) {
  HWY_ALIGN float lanes[kLanes] = {};
  for (std::size_t i = 0; i < part.count; ++i) lanes[i] = from[i];
  return hn::Load(D(), lanes);
}
HWY_INLINE void store_part(V v, Lanes part, float* to) {
  HWY_ALIGN float lanes[kLanes];
  hn::Store(v, D(), lanes);
  for (std::size_t i = 0; i < part.count; ++i) to[i] = lanes[i];
}
/// Zeros in the other lanes.
HWY_INLINE V only_part(Lanes part, V v) {
  return hn::IfThenElseZero(hn::FirstN(D(), part.count), v);
}
#else
using Lanes = hn::Mask<D>;
HWY_INLINE Lanes first_lanes(std::size_t count) {
  return hn::FirstN(D(), count);
}
HWY_INLINE V load_part(Lanes part, const float* from) {
  return hn::MaskedLoad(part, D(), from);
}
HWY_INLINE void store_part(V v, Lanes part, float* to) {
  hn::BlendedStore(v, part, D(), to);
}
HWY_INLINE V only_part(Lanes part, V v) {
  return hn::IfThenElseZero(part, v);
}
#endif

HWY_INLINE V relu_of(V v) {  // keeps NaN, as LibTorch does
  return hn::IfThenZeroElse(hn::Lt(v, hn::Zero(D())), v);
}

HWY_INLINE V sigmoid_of(V v) {
  const D d;
  const V one = hn::Set(d, 1.0f);
  const V most = hn::Set(d, 104.0f);  // beyond, Exp has no defined value; here it is infinite
  const V made = hn::Div(one, hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(v), most))));
  return hn::IfThenElse(hn::IsNaN(v), v, made);  // Exp takes a NaN for a small number
}

/// exp of what is at most 0. Exp takes a NaN for a small number.
HWY_INLINE V exp_below(V v) {
  const D d;
  return hn::IfThenElse(hn::IsNaN(v), v, hn::Exp(d, hn::Max(v, hn::Set(d, -104.0f))));
}

HWY_INLINE V activated(V v, Activation activation) {
  if (activation == Activation::kRelu) return relu_of(v);
  if (activation == Activation::kSigmoid) return sigmoid_of(v);
  return v;
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#endif
