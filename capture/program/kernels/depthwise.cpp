// Vectors along the channels: every tap is a product of two of them.
#include "capture/program/kernels/depthwise.h"

#include <algorithm>

#include "capture/program/kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/depthwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Highway wants its own contributions after highway.h.
#include "capture/program/kernels/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

constexpr std::size_t kTaps = kLargestDepthwise * kLargestDepthwise;

/// Outputs `first` to `last` of which tap `tap` lies inside the input.
struct Inside {
  Inside(int tap, const Convolution& c, int input, int output)
      : offset(tap - c.kernel / 2),
        first(std::max(0, (-offset + c.stride - 1) / c.stride)),
        last(input > offset ? std::min(output, (input - 1 - offset) / c.stride + 1) : 0) {}
  const int offset, first, last;
};

/// The weights of channels [channel, channel + count), a vector a tap.
struct Weights {
  Weights(const Convolution& c, const float* weights, std::size_t channel, std::size_t count) {
    const std::size_t taps = std::size_t(c.kernel) * std::size_t(c.kernel);
    for (std::size_t tap = 0; tap < taps; ++tap) {
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        of[tap * kLanes + lane] = lane < count ? weights[(channel + lane) * taps + tap] : 0;
    }
  }
  HWY_ALIGN float of[kTaps * kLanes];
};

struct Block {
  std::size_t channel, count;
  Lanes part;
  Block(const Convolution& c, std::size_t first)
      : channel(first),
        count(std::min(kLanes, std::size_t(c.input.channels) - first)),
        part(first_lanes(count)) {}
  V load(const float* at) const { return load_part(part, at); }
  void store(V v, float* at) const { store_part(v, part, at); }
};

void forward(const Convolution& c, const Operands& o, std::size_t channel) {
  const Block block(c, channel);
  const Weights weights(c, o.packed, block.channel, block.count);
  const std::size_t step = std::size_t(c.input.channels);
  const V bias = o.bias ? block.load(o.bias + channel) : hn::Zero(D());
  const int middle = c.kernel / 2;
  for (int y = 0; y < c.output.height; ++y) {
    const int top = y * c.stride - middle;
    const int from_y = std::max(0, -top), to_y = std::min(c.kernel, c.input.height - top);
    for (int x = 0; x < c.output.width; ++x) {
      const int left = x * c.stride - middle;
      const int from_x = std::max(0, -left), to_x = std::min(c.kernel, c.input.width - left);
      V sum = bias;
      for (int i = from_y; i < to_y; ++i) {
        const float* source = o.x + std::size_t(top + i) * c.input.row() +
                              std::size_t(left + from_x) * step + channel;
        const float* weight = weights.of + std::size_t(i * c.kernel + from_x) * kLanes;
        for (int j = from_x; j < to_x; ++j, source += step, weight += kLanes)
          sum = hn::MulAdd(block.load(source), hn::Load(D(), weight), sum);
      }
      block.store(sum, o.y + std::size_t(y) * c.output.row() + std::size_t(x) * step + channel);
    }
  }
}

/// Each output's gradient goes to the inputs that it was made of.
void data_gradient(const Convolution& c, const Operands& o, std::size_t channel) {
  const Block block(c, channel);
  const Weights weights(c, o.packed, block.channel, block.count);
  const std::size_t step = std::size_t(c.input.channels);
  for (int y = 0; y < c.input.height; ++y) {
    for (int x = 0; x < c.input.width; ++x) {
      V sum = hn::Zero(D());
      for (int i = 0; i < c.kernel; ++i) {
        const int down = y + c.kernel / 2 - i;
        if (down < 0 || down % c.stride || down / c.stride >= c.output.height) continue;
        const float* const row = o.dy + std::size_t(down / c.stride) * c.output.row() + channel;
        for (int j = 0; j < c.kernel; ++j) {
          const int right = x + c.kernel / 2 - j;
          if (right < 0 || right % c.stride || right / c.stride >= c.output.width) continue;
          sum = hn::MulAdd(block.load(row + std::size_t(right / c.stride) * step),
                           hn::Load(D(), weights.of + std::size_t(i * c.kernel + j) * kLanes), sum);
        }
      }
      block.store(sum, o.dx + std::size_t(y) * c.input.row() + std::size_t(x) * step + channel);
    }
  }
}

void weight_gradient(const Convolution& c, const Operands& o, std::size_t channel) {
  const D d;
  const Block block(c, channel);
  const std::size_t step = std::size_t(c.input.channels);
  const std::size_t taps = std::size_t(c.kernel) * std::size_t(c.kernel);
  HWY_ALIGN float lanes[kLanes];
  for (int i = 0; i < c.kernel; ++i) {
    const Inside rows(i, c, c.input.height, c.output.height);
    for (int j = 0; j < c.kernel; ++j) {
      const Inside columns(j, c, c.input.width, c.output.width);
      V sum = hn::Zero(d);
      for (int y = rows.first; y < rows.last; ++y) {
        const float* gradient =
            o.dy + std::size_t(y) * c.output.row() + std::size_t(columns.first) * step + channel;
        const float* source = o.x + std::size_t(y * c.stride + rows.offset) * c.input.row() +
                              std::size_t(columns.first * c.stride + columns.offset) * step +
                              channel;
        V row[2] = {hn::Zero(d), hn::Zero(d)};
        for (int x = columns.first; x < columns.last; ++x) {
          row[x % 2] = hn::MulAdd(block.load(gradient), block.load(source), row[x % 2]);
          gradient += step;
          source += std::size_t(c.stride) * step;
        }
        sum = hn::Add(sum, hn::Add(row[0], row[1]));
      }
      hn::Store(sum, d, lanes);
      const std::size_t tap = std::size_t(i * c.kernel + j);
      for (std::size_t lane = 0; lane < block.count; ++lane)
        o.weight_gradient[(channel + lane) * taps + tap] = lanes[lane];
    }
  }
}

void depthwise(const Convolution& c, const Operands& o, std::size_t begin, std::size_t end) {
  for (std::size_t channel = begin; channel < end; channel += kLanes) {
    if (c.pass == Pass::kForward) forward(c, o, channel);
    if (c.pass == Pass::kDataGradient) data_gradient(c, o, channel);
    if (c.pass == Pass::kWeightGradient) weight_gradient(c, o, channel);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(depthwise);

void depthwise(const Convolution& convolution, const Operands& operands, Share share) {
  const auto [begin, end] = share.of(std::size_t(convolution.input.channels), lanes());
  HWY_DYNAMIC_DISPATCH(depthwise)(convolution, operands, begin, end);
  if (operands.bias_gradient)
    channel_sums(operands.dy, convolution.output, begin, end, operands.bias_gradient, false);
}

}  // namespace millrace::kernels
#endif
