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

HWY_INLINE V activated(V v, Activation activation) {
  if (activation == Activation::kRelu) return relu_of(v);
  if (activation == Activation::kSigmoid) return sigmoid_of(v);
  return v;
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#endif
