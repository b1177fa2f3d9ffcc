// Windows over each channel alone, vectors along the channels: max pooling and resampling.
#include <algorithm>
#include <limits>

#include "capture/program/kernels/internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/windows.cpp"
#include <hwy/foreach_target.h>

#include "capture/program/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels::HWY_NAMESPACE {

#define FORMULA HWY_INLINE
#include "capture/program/operations/pool-inl.h"
#include "capture/program/operations/resample-inl.h"
#undef FORMULA

void resample(const ResampleArguments& r, Share share) {
  const std::size_t step = std::size_t(r.input.channels);
  const auto [begin, end] = share.of(std::size_t(r.output.height));
  for (int y = int(begin); y < int(end); ++y) {
    for (int x = 0; x < r.output.width; ++x) {
      float* const to = r.to + std::size_t(y) * r.output.row() + std::size_t(x) * step;
      for (std::size_t c = 0; c < step; c += kLanes) {
        const Lanes part = first_lanes(step - c);
        const auto load = [&](int at) HWY_ATTR {
          return load_part(part, r.x + std::size_t(at) * step + c);
        };
        store_part(resampled(r, y, x, load), part, to + c);
      }
    }
  }
}

/// Calls work(output pixel, its window).
template <class Work>
HWY_INLINE void each_window(const PoolArguments& p, const Work& work) {
  for (int y = 0; y < p.output.height; ++y) {
    for (int x = 0; x < p.output.width; ++x)
      work(std::size_t(y * p.output.width + x), PoolWindow(p, y, x));
  }
}

/// The first maximum of a window, or its first NaN, and its index in the window.
HWY_INLINE V largest_of(const PoolWindow& window, const float* x, Lanes part, V& which) {
  V best = hn::Set(d, -std::numeric_limits<float>::infinity()), count = hn::Zero(d);
  which = hn::Zero(d);
  const std::size_t step = std::size_t(window.p.input.channels);
  window.each([&](int at) HWY_ATTR {
    const V v = load_part(part, x + std::size_t(at) * step);
    const auto better = hn::AndNot(hn::IsNaN(best), hn::Or(hn::Gt(v, best), hn::IsNaN(v)));
    best = hn::IfThenElse(better, v, best);
    which = hn::IfThenElse(better, count, which);
    count = hn::Add(count, hn::Set(d, 1));
  });
  return best;
}

void pool_channels(const PoolArguments& p, std::size_t first, Lanes part) {
  const float* const x = p.x + first;
  const std::size_t step = std::size_t(p.input.channels);
  each_window(p, [&](std::size_t pixel, const PoolWindow& window) HWY_ATTR {
    V which;
    const V made = largest_of(window, x, part, which);
    store_part(made, part, p.to + first + pixel * step);
  });
}

void pool_gradient_channels(const PoolArguments& p, std::size_t first, Lanes part) {
  const std::size_t step = std::size_t(p.input.channels);
  float* const dx = p.to + first;
  for (std::size_t i = 0; i < std::size_t(p.input.pixels()); ++i)
    store_part(hn::Zero(d), part, dx + i * step);
  each_window(p, [&](std::size_t pixel, const PoolWindow& window) HWY_ATTR {
    const V gradient = load_part(part, p.dy + first + pixel * step);
    V which, count = hn::Zero(d);
    largest_of(window, p.x + first, part, which);
    window.each([&](int at) HWY_ATTR {
      float* const to = dx + std::size_t(at) * step;
      const V added = hn::IfThenElseZero(hn::Eq(which, count), gradient);
      store_part(hn::Add(load_part(part, to), added), part, to);
      count = hn::Add(count, hn::Set(d, 1));
    });
  });
}

void pool(const PoolArguments& p, Share share) {
  const auto [begin, end] = share.of(std::size_t(p.input.channels), kLanes);
  for (std::size_t c = begin; c < end; c += kLanes)
    (p.dy ? pool_gradient_channels : pool_channels)(p, c, first_lanes(end - c));
}

}  // namespace millrace::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

TEAM_KERNEL(pool, PoolArguments)
TEAM_KERNEL(resample, ResampleArguments)

}  // namespace millrace::kernels
#endif
