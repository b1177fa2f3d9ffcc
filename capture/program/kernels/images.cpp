// Images: copies between layouts, sums over pixels, the loss.
#include "capture/program/kernels/internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/images.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Highway wants its own contributions after highway.h.
#include "capture/program/kernels/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

void channel_sums(const float* source, const Layout& layout, std::size_t begin, std::size_t end,
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

/// One row of the loss: returns the sum of squares, writes scale * difference where wanted.
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

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(channel_sums);
HWY_EXPORT(mse_row);

void channel_sums(const float* source, const Layout& layout, std::size_t begin, std::size_t end,
                  float* sums, bool accumulate, float factor) {
  HWY_DYNAMIC_DISPATCH(channel_sums)(source, layout, begin, end, sums, accumulate, factor);
}
void channel_sums(const Layout& layout, const float* source, float factor, float* sums,
                  Share share) {
  const auto [begin, end] = share.of(std::size_t(layout.channels), lanes());
  channel_sums(source, layout, begin, end, sums, /*accumulate=*/false, factor);
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

/// Calls copy(place among pixels, place among planes) of each number. The channel count is known at
/// compile time where it is a picture's, so that the loop unrolls.
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

}  // namespace millrace::kernels
#endif
