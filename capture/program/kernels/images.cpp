#include <algorithm>
#include <limits>

#include "capture/program/kernels/internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/images.cpp"
#include <hwy/foreach_target.h>

#include "capture/program/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

void sum_channels(const float* source, const Layout& layout, std::size_t begin, std::size_t end,
                  float* sums, bool accumulate, float factor) {
  const D d;
  for (std::size_t channel = begin; channel < end; channel += kLanes) {
    const auto part = first_lanes(end - channel);
    V total = hn::Zero(d);
    for (int y = 0; y < layout.height; ++y) {
      const float* from = source + y * layout.row() + channel;
      V row[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
      for (int x = 0; x < layout.width; ++x, from += layout.channels)
        row[x % 4] = hn::Add(row[x % 4], load_part(part, from));
      total = hn::Add(total, hn::Add(hn::Add(row[0], row[1]), hn::Add(row[2], row[3])));
    }
    total = hn::Mul(total, hn::Set(d, factor));
    if (accumulate) total = hn::Add(total, load_part(part, sums + channel));
    store_part(total, part, sums + channel);
  }
}

/// One row of the loss: returns the sum of squares and writes scale * difference if wanted.
float mse_row(const float* prediction, const float* target, float* gradient, std::size_t count,
              float scale, bool through_sigmoid) {
  const D d;
  const V factor = hn::Set(d, scale);
  V sum = hn::Zero(d);
  each_vector(0, count, [&](const auto& e) HWY_ATTR {
    const V p = e.load(prediction), difference = hn::Sub(p, e.load(target));
    sum = hn::MulAdd(difference, difference, sum);
    if (!gradient) return;
    const V g = hn::Mul(factor, difference);
    e.store(gradient, through_sigmoid ? sigmoid_gradient_of(g, p) : g);
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// Calls work(output pixel, rows and columns that its window meets).
template <class Work>
HWY_INLINE void each_window(const Pool& p, const Work& work) {
  for (int y = 0; y < p.output.height; ++y) {
    for (int x = 0; x < p.output.width; ++x) {
      work(std::size_t(y * p.output.width + x), Met(p.window.rows, y, p.input.height),
           Met(p.window.columns, x, p.input.width));
    }
  }
}

/// Calls work(offset of an input pixel's first channel) for each pixel of a window.
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

/// The first maximum of a window, or its first NaN, and its index in the window.
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

HWY_EXPORT(sum_channels);
HWY_EXPORT(mse_row);
HWY_EXPORT(pool_all);
HWY_EXPORT(pool_gradient_all);

void channel_sums(const Layout& layout, const float* source, float factor, float* sums, Share share,
                  bool accumulate) {
  const auto [begin, end] = share.of(std::size_t(layout.channels), lanes());
  HWY_DYNAMIC_DISPATCH(sum_channels)(source, layout, begin, end, sums, accumulate, factor);
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

namespace {

/// Calls copy(index among pixels, index among planes) for each number. Unrolls for common channel
/// counts.
template <int kChannels, class Copy>
void each_number(const Layout& layout, const Copy& copy) {
  const std::size_t plane = std::size_t(layout.height) * layout.width;
  const std::size_t channels = kChannels ? kChannels : layout.channels;
  for (std::size_t i = 0; i < plane; ++i) {
    for (std::size_t c = 0; c < channels; ++c) copy(i * channels + c, c * plane + i);
  }
}
template <class Copy>
void each_number(const Layout& layout, const Copy& copy) {
  layout.channels == 3 ? each_number<3>(layout, copy) : each_number<0>(layout, copy);
}

}  // namespace

void from_planes(const float* planes, float* destination, const Layout& to) {
  each_number(to, [&](std::size_t pixel, std::size_t at) { destination[pixel] = planes[at]; });
}

void to_planes(const float* source, const Layout& from, float* planes) {
  each_number(from, [&](std::size_t pixel, std::size_t at) { planes[at] = source[pixel]; });
}

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
