// What the machine can do.
#include <algorithm>
#include <chrono>

#include "capture/program/kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/measure.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// 12 chains of fused multiply-adds, `rounds` each. Returns the operations done.
double multiply_add(int rounds, float* result) {
  constexpr int kChains = 12;
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, result[0]), term = hn::Set(d, result[1]);
  hn::Vec<decltype(d)> chains[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) chains[i] = hn::Set(d, result[0] * i);  // else one would do
  for (int i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (auto& chain : chains) chain = hn::MulAdd(chain, factor, term);
  }
#pragma GCC unroll 16
  for (auto& chain : chains) result[2] += hn::GetLane(chain);
  return 2.0 * kChains * hn::Lanes(d) * rounds;
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {
namespace {

HWY_EXPORT(multiply_add);

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

double fma_peak(int repeats) {
  float values[3] = {0.5f, 1e-3f, 0};
  double best = 0;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = Clock::now();
    const double operations = HWY_DYNAMIC_DISPATCH(multiply_add)(100'000, values);
    best = std::max(best, operations / seconds_since(begin));
  }
  return values[2] > 0 ? best : 0;  // reading the result keeps the loop
}

}  // namespace millrace::kernels
#endif
