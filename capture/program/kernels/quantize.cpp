#include <cmath>
#include <limits>

#include "capture/program/kernels/internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/quantize.cpp"
#include <hwy/foreach_target.h>

#include "capture/program/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

using Integers = hn::Rebind<std::int32_t, D>;
using Bytes = hn::Rebind<std::uint8_t, D>;

void quantize_lines(const QuantizedArguments& q, std::size_t begin, std::size_t end) {
  const std::size_t count = std::size_t(q.width), whole = count / kLanes * kLanes;
  for (std::size_t line = begin; line < end; ++line) {
    const float* const x = q.values + line * count;
    std::uint8_t* const to = q.bytes + line * count;
    V lows = hn::Set(D(), x[0]), highs = lows;
    for (std::size_t i = 0; i < whole; i += kLanes) {
      const V v = hn::LoadU(D(), x + i);
      lows = hn::Min(lows, v);
      highs = hn::Max(highs, v);
    }
    float least = hn::GetLane(hn::MinOfLanes(D(), lows));
    float most = hn::GetLane(hn::MaxOfLanes(D(), highs));
    for (std::size_t i = whole; i < count; ++i) {
      least = std::min(least, x[i]);
      most = std::max(most, x[i]);
    }
    const float step = (most - least) * (1.0f / 255),
                inverse = step >= std::numeric_limits<float>::min() ? 1 / step : 0;
    const V low = hn::Set(D(), least), factor = hn::Set(D(), inverse);
    for (std::size_t i = 0; i < whole; i += kLanes) {
      const V scaled = hn::Mul(hn::Sub(hn::LoadU(D(), x + i), low), factor);
      hn::StoreU(hn::DemoteTo(Bytes(), hn::NearestInt(scaled)), Bytes(), to + i);
    }
    for (std::size_t i = whole; i < count; ++i)
      to[i] = std::uint8_t(std::min(255.0f, std::nearbyint((x[i] - least) * inverse)));
    q.ranges[2 * line] = least;
    q.ranges[2 * line + 1] = step;
  }
}

void dequantize_lines(const QuantizedArguments& q, std::size_t begin, std::size_t end) {
  const std::size_t count = std::size_t(q.width), whole = count / kLanes * kLanes;
  for (std::size_t line = begin; line < end; ++line) {
    const std::uint8_t* const x = q.bytes + line * count;
    float* const to = q.made + line * count;
    const float least = q.ranges[2 * line], step = q.ranges[2 * line + 1];
    const V low = hn::Set(D(), least), factor = hn::Set(D(), step);
    for (std::size_t i = 0; i < whole; i += kLanes) {
      const auto bytes = hn::PromoteTo(Integers(), hn::LoadU(Bytes(), x + i));
      hn::StoreU(hn::MulAdd(hn::ConvertTo(D(), bytes), factor, low), D(), to + i);
    }
    for (std::size_t i = whole; i < count; ++i) to[i] = std::fma(float(x[i]), step, least);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(quantize_lines);
HWY_EXPORT(dequantize_lines);

void quantize(const QuantizedArguments& q, Share share) {
  const auto [begin, end] = share.of(std::size_t(q.lines));
  HWY_DYNAMIC_DISPATCH(quantize_lines)(q, begin, end);
}

void dequantize(const QuantizedArguments& q, Share share) {
  const auto [begin, end] = share.of(std::size_t(q.lines));
  HWY_DYNAMIC_DISPATCH(dequantize_lines)(q, begin, end);
}

}  // namespace millrace::kernels
#endif
