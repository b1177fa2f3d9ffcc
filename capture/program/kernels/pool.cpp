// Pooling and its gradient.
#include <algorithm>
#include <limits>

#include "capture/program/kernels/internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/pool.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Highway wants its own contributions after highway.h.
#include "capture/program/kernels/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

/// Calls work(output pixel, what its window meets of rows and of columns).
template <class Work>
HWY_INLINE void each_window(const Pool& p, const Work& work) {
  for (int y = 0; y < p.output.height; ++y) {
    for (int x = 0; x < p.output.width; ++x) {
      work(std::size_t(y * p.output.width + x), Met(p.window.rows, y, p.input.height),
           Met(p.window.columns, x, p.input.width));
    }
  }
}

/// Calls work(offset of the first channel of an input pixel) for each pixel of a window.
template <class Work>
HWY_INLINE void each_pixel(const Pool& p, const Met& rows, const Met& columns, const Work& work) {
  for (int i = rows.first; i < rows.last; ++i) {
    const std::size_t y = std::size_t(rows.begin + i * p.window.rows.dilation);
    for (int j = columns.first; j < columns.last; ++j) {
      const std::size_t x = std::size_t(columns.begin + j * p.window.columns.dilation);
      work((y * std::size_t(p.input.width) + x) * std::size_t(p.input.channels));
    }
  }
}

HWY_INLINE V share_of_each(const Pool& p, const Met& rows, const Met& columns) {
  const int taps = p.counts_zeros ? taps_of(p.window) : rows.count() * columns.count();
  return hn::Set(D(), 1 / (p.divisor > 0 ? p.divisor : float(taps)));
}

/// The first largest of a window, or its first NaN; and which of its pixels that is.
HWY_INLINE V largest_of(const Pool& p, const Met& rows, const Met& columns, const float* x,
                        Lanes part, V& which) {
  const D d;
  V best = hn::Set(d, -std::numeric_limits<float>::infinity()), count = hn::Zero(d);
  which = hn::Zero(d);
  each_pixel(p, rows, columns, [&](std::size_t at) HWY_ATTR {
    const V v = load_part(part, x + at);
    const auto better = hn::AndNot(hn::IsNaN(best), hn::Or(hn::Gt(v, best), hn::IsNaN(v)));
    best = hn::IfThenElse(better, v, best);
    which = hn::IfThenElse(better, count, which);
    count = hn::Add(count, hn::Set(d, 1));
  });
  return best;
}

void pool_channels(const Pool& p, const float* x, float* y, Lanes part) {
  const D d;
  each_window(p, [&](std::size_t pixel, const Met& rows, const Met& columns) HWY_ATTR {
    V made = hn::Zero(d), which;
    if (p.largest) {
      made = largest_of(p, rows, columns, x, part, which);
    } else {
      each_pixel(p, rows, columns,
                 [&](std::size_t at) HWY_ATTR { made = hn::Add(made, load_part(part, x + at)); });
      made = hn::Mul(made, share_of_each(p, rows, columns));
    }
    store_part(made, part, y + pixel * std::size_t(p.output.channels));
  });
}

void pool_gradient_channels(const Pool& p, const float* dy, const float* x, float* dx, Lanes part) {
  const D d;
  const std::size_t pixels = std::size_t(p.input.height) * p.input.width;
  for (std::size_t i = 0; i < pixels; ++i)
    store_part(hn::Zero(d), part, dx + i * std::size_t(p.input.channels));
  each_window(p, [&](std::size_t pixel, const Met& rows, const Met& columns) HWY_ATTR {
    V gradient = load_part(part, dy + pixel * std::size_t(p.output.channels));
    V which = hn::Zero(d), count = hn::Zero(d);
    if (p.largest) {
      largest_of(p, rows, columns, x, part, which);
    } else {
      gradient = hn::Mul(gradient, share_of_each(p, rows, columns));
    }
    each_pixel(p, rows, columns, [&](std::size_t at) HWY_ATTR {
      const V added = p.largest ? hn::IfThenElseZero(hn::Eq(which, count), gradient) : gradient;
      store_part(hn::Add(load_part(part, dx + at), added), part, dx + at);
      count = hn::Add(count, hn::Set(d, 1));
    });
  });
}

void pool_all(const Pool& p, const float* x, float* y, std::size_t begin, std::size_t end) {
  for (std::size_t c = begin; c < end; c += kLanes)
    pool_channels(p, x + c, y + c, first_lanes(end - c));
}
void pool_gradient_all(const Pool& p, const float* dy, const float* x, float* dx, std::size_t begin,
                       std::size_t end) {
  for (std::size_t c = begin; c < end; c += kLanes)
    pool_gradient_channels(p, dy + c, x ? x + c : x, dx + c, first_lanes(end - c));
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(pool_all);
HWY_EXPORT(pool_gradient_all);

void pool(const Pool& p, const float* x, float* y, Share share) {
  const auto [begin, end] = share.of(std::size_t(p.input.channels), lanes());
  HWY_DYNAMIC_DISPATCH(pool_all)(p, x, y, begin, end);
}

void pool_gradient(const Pool& p, const float* dy, const float* x, float* dx, Share share) {
  const auto [begin, end] = share.of(std::size_t(p.input.channels), lanes());
  HWY_DYNAMIC_DISPATCH(pool_gradient_all)(p, dy, x, dx, begin, end);
}

}  // namespace millrace::kernels
#endif
