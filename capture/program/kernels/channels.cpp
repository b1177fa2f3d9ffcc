// Bias apart from its convolution.
#include "capture/program/kernels/channels.h"

#include "capture/program/kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/channels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Highway wants its own contributions after highway.h.
#include "capture/program/kernels/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

void add_to_channels(const float* source, const float* added, Activation activation,
                     std::size_t pixels, std::size_t channels, float* destination) {
  for (std::size_t i = 0; i < pixels; ++i, source += channels, destination += channels) {
    for (std::size_t c = 0; c < channels; c += kLanes) {
      const auto part = first_lanes(channels - c);
      const V sum = hn::Add(load_part(part, source + c), load_part(part, added + c));
      store_part(activated(sum, activation), part, destination + c);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(add_to_channels);

void add_to_channels(const Layout& layout, const float* source, const float* added,
                     Activation activation, float* destination, Share share) {
  const auto channels = std::size_t(layout.channels);
  const auto [begin, end] = share.of(std::size_t(layout.height) * std::size_t(layout.width));
  HWY_DYNAMIC_DISPATCH(add_to_channels)
  (source + begin * channels, added, activation, end - begin, channels,
   destination + begin * channels);
}

void channel_sums(const Layout& layout, const float* source, float* sums, Share share) {
  const auto [begin, end] = share.of(std::size_t(layout.channels), lanes());
  channel_sums(source, layout, begin, end, sums, /*accumulate=*/false);
}

}  // namespace millrace::kernels
#endif
