// The loss, and whether all is finite.
#include <limits>

#include "capture/program/kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/elementwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Highway wants its own contributions after highway.h.
#include "capture/program/kernels/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

HWY_INLINE V through_sigmoid_of(V gradient, V output) {
  return hn::Mul(hn::Mul(gradient, hn::Sub(hn::Set(D(), 1.0f), output)), output);
}

bool all_finite(const float* values, std::size_t count) {
  const D d;
  const V most = hn::Set(d, std::numeric_limits<float>::max());
  const auto finite = [&](V v) { return hn::Le(hn::Abs(v), most); };
  std::size_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    const auto first =
        hn::And(finite(hn::LoadU(d, values + i)), finite(hn::LoadU(d, values + i + kLanes)));
    const auto second = hn::And(finite(hn::LoadU(d, values + i + 2 * kLanes)),
                                finite(hn::LoadU(d, values + i + 3 * kLanes)));
    if (!hn::AllTrue(d, hn::And(first, second))) return false;
  }
  for (; i < count; i += kLanes) {
    const V v = load_part(first_lanes(count - i), values + i);
    if (!hn::AllTrue(d, finite(v))) return false;
  }
  return true;
}

/// One row of the loss: returns the sum of squares, writes scale * difference where wanted.
float mse_row(const float* prediction, const float* target, float* gradient, std::size_t count,
              float scale, bool through_sigmoid) {
  const D d;
  const V factor = hn::Set(d, scale);
  V sum = hn::Zero(d);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const auto part = first_lanes(count - i);
    const V p = load_part(part, prediction + i);
    const V difference = hn::Sub(p, load_part(part, target + i));
    sum = hn::MulAdd(difference, difference, sum);
    if (!gradient) continue;
    const V g = hn::Mul(factor, difference);
    store_part(through_sigmoid ? through_sigmoid_of(g, p) : g, part, gradient + i);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(all_finite);
HWY_EXPORT(mse_row);

bool all_finite(const float* values, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(all_finite)(values, count);
}

float mse(const Layout& layout, const float* prediction, const float* target, float* gradient,
          bool through_sigmoid, float scale) {
  const std::size_t row = layout.row(), count = layout.floats();
  const auto of_row = HWY_DYNAMIC_DISPATCH(mse_row);
  double sum = 0;
  for (std::size_t i = 0; i < count; i += row) {
    sum += of_row(prediction + i, target + i, gradient ? gradient + i : nullptr, row,
                  float(2.0 / double(count)) * scale, through_sigmoid);
  }
  return float(sum / double(count));
}

}  // namespace millrace::kernels
#endif
