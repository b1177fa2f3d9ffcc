// Windows over each channel alone, vectors along the channels: depthwise convolutions, pooling,
// resampling.
#include <algorithm>
#include <limits>

#include "capture/program/kernels/internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/windows.cpp"
#include <hwy/foreach_target.h>

#include "capture/program/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

/// The outputs [first, last) for which tap `tap` is inside the input.
struct Outputs {
  Outputs(int tap, const Taps& taps, int inputs, int outputs)
      : offset(tap * taps.dilation - taps.padding),
        first(std::max(0, (-offset + taps.stride - 1) / taps.stride)),
        last(inputs > offset ? std::min(outputs, (inputs - 1 - offset) / taps.stride + 1) : 0) {}
  const int offset, first, last;
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
  /// The block's weights, one vector per tap.
  const float* weights(const Operands& o, std::size_t taps) const {
    for (std::size_t tap = 0; tap < taps; ++tap) {
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        o.scratch[tap * kLanes + lane] =
            lane < count ? o.weights[(channel + lane) * taps + tap] : 0;
    }
    return o.scratch;
  }
};

void make_output(const Convolution& c, const Operands& o, std::size_t channel) {
  const Block block(c, channel);
  const auto [rows, columns] = window_of(c);
  const float* const weights = block.weights(o, std::size_t(rows.count * columns.count));
  const std::size_t step = std::size_t(c.input.channels);
  const V bias = o.bias ? block.load(o.bias + channel) : hn::Zero(D());
  for (int y = 0; y < c.output.height; ++y) {
    const Met down(rows, y, c.input.height);
    for (int x = 0; x < c.output.width; ++x) {
      const Met right(columns, x, c.input.width);
      V sum = bias;
      for (int i = down.first; i < down.last; ++i) {
        const float* source =
            o.source + std::size_t(down.begin + i * rows.dilation) * c.input.row() +
            std::size_t(right.begin + right.first * columns.dilation) * step + channel;
        const float* weight = weights + std::size_t(i * columns.count + right.first) * kLanes;
        for (int j = right.first; j < right.last; ++j, weight += kLanes) {
          sum = hn::MulAdd(block.load(source), hn::Load(D(), weight), sum);
          source += std::size_t(columns.dilation) * step;
        }
      }
      block.store(activated(sum, c.activation),
                  o.made + std::size_t(y) * c.output.row() + std::size_t(x) * step + channel);
    }
  }
}

/// Adds each output's gradient to the inputs it was computed from.
void data_gradient(const Convolution& c, const Operands& o, std::size_t channel) {
  const Block block(c, channel);
  const auto [rows, columns] = window_of(c);
  const float* const weights = block.weights(o, std::size_t(rows.count * columns.count));
  const std::size_t step = std::size_t(c.input.channels);
  for (int y = 0; y < c.input.height; ++y) {
    for (int x = 0; x < c.input.width; ++x) {
      V sum = hn::Zero(D());
      for (int i = 0; i < rows.count; ++i) {
        const int down = y + rows.padding - i * rows.dilation;
        if (down < 0 || down % rows.stride || down / rows.stride >= c.output.height) continue;
        const float* const row =
            o.source + std::size_t(down / rows.stride) * c.output.row() + channel;
        for (int j = 0; j < columns.count; ++j) {
          const int right = x + columns.padding - j * columns.dilation;
          if (right < 0 || right % columns.stride || right / columns.stride >= c.output.width)
            continue;
          sum =
              hn::MulAdd(block.load(row + std::size_t(right / columns.stride) * step),
                         hn::Load(D(), weights + std::size_t(i * columns.count + j) * kLanes), sum);
        }
      }
      const std::size_t at = std::size_t(x) * step + channel;
      if (o.mask) {
        const V made = block.load(o.mask + std::size_t(y) * c.input.row() + at);
        sum = hn::IfThenZeroElse(hn::Le(made, hn::Zero(D())), sum);
      }
      block.store(sum, o.made + std::size_t(y) * c.input.row() + at);
    }
  }
}

void weight_gradient(const Convolution& c, const Operands& o, std::size_t channel) {
  const D d;
  const Block block(c, channel);
  const auto [rows, columns] = window_of(c);
  const std::size_t step = std::size_t(c.input.channels);
  const std::size_t taps = std::size_t(rows.count * columns.count);
  HWY_ALIGN float lanes[kLanes];
  for (std::size_t tap = 0; tap < taps; ++tap) {
    const Outputs down(int(tap) / columns.count, rows, c.input.height, c.output.height);
    const Outputs right(int(tap) % columns.count, columns, c.input.width, c.output.width);
    V sum = hn::Zero(d);
    for (int y = down.first; y < down.last; ++y) {
      const float* gradient =
          o.source + std::size_t(y) * c.output.row() + std::size_t(right.first) * step + channel;
      const float* source = o.x + std::size_t(y * rows.stride + down.offset) * c.input.row() +
                            std::size_t(right.first * columns.stride + right.offset) * step +
                            channel;
      V row[2] = {hn::Zero(d), hn::Zero(d)};
      for (int x = right.first; x < right.last; ++x) {
        row[x % 2] = hn::MulAdd(block.load(gradient), block.load(source), row[x % 2]);
        gradient += step;
        source += std::size_t(columns.stride) * step;
      }
      sum = hn::Add(sum, hn::Add(row[0], row[1]));
    }
    hn::Store(sum, d, lanes);
    for (std::size_t lane = 0; lane < block.count; ++lane) {
      float& made = o.made[(channel + lane) * taps + tap];
      made = c.accumulate ? made + lanes[lane] : lanes[lane];
    }
  }
}

void depthwise(const Convolution& c, const Operands& o, std::size_t begin, std::size_t end) {
  for (std::size_t channel = begin; channel < end; channel += kLanes) {
    if (c.pass == Pass::kForward) make_output(c, o, channel);
    if (c.pass == Pass::kDataGradient) data_gradient(c, o, channel);
    if (c.pass == Pass::kWeightGradient) weight_gradient(c, o, channel);
  }
}

#define FORMULA HWY_INLINE
#include "capture/program/operations/pool-inl.h"
#include "capture/program/operations/resample-inl.h"
#undef FORMULA

/// Rows [begin, end).
void resample_rows(const ResampleArguments& r, int begin, int end) {
  const std::size_t step = std::size_t(r.input.channels);
  for (int y = begin; y < end; ++y) {
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
  const D d;
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
    V made = hn::Zero(D()), which;
    if (p.largest) {
      made = largest_of(window, x, part, which);
    } else {
      window.each([&](int at) HWY_ATTR {
        made = hn::Add(made, load_part(part, x + std::size_t(at) * step));
      });
      made = hn::Mul(made, constant(window.share()));
    }
    store_part(made, part, p.to + first + pixel * step);
  });
}

void pool_gradient_channels(const PoolArguments& p, std::size_t first, Lanes part) {
  const D d;
  const std::size_t step = std::size_t(p.input.channels);
  float* const dx = p.to + first;
  for (std::size_t i = 0; i < std::size_t(p.input.pixels()); ++i)
    store_part(hn::Zero(d), part, dx + i * step);
  each_window(p, [&](std::size_t pixel, const PoolWindow& window) HWY_ATTR {
    V gradient = load_part(part, p.dy + first + pixel * step);
    V which = hn::Zero(d), count = hn::Zero(d);
    if (p.largest) {
      largest_of(window, p.x + first, part, which);
    } else {
      gradient = hn::Mul(gradient, constant(window.share()));
    }
    window.each([&](int at) HWY_ATTR {
      float* const to = dx + std::size_t(at) * step;
      const V added = p.largest ? hn::IfThenElseZero(hn::Eq(which, count), gradient) : gradient;
      store_part(hn::Add(load_part(part, to), added), part, to);
      count = hn::Add(count, hn::Set(d, 1));
    });
  });
}

/// Channels [begin, end).
void pool_all(const PoolArguments& p, std::size_t begin, std::size_t end) {
  for (std::size_t c = begin; c < end; c += kLanes)
    (p.dy ? pool_gradient_channels : pool_channels)(p, c, first_lanes(end - c));
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(depthwise);
HWY_EXPORT(pool_all);
HWY_EXPORT(resample_rows);

namespace {

class DepthwiseKernel final : public Kernel {
 public:
  explicit DepthwiseKernel(const Convolution& c) : c_(c) {}
  std::size_t scratch_floats() const override {
    return std::size_t(taps_of(window_of(c_))) * lanes();
  }
  /// Threads share the channels.
  void run(const Operands& operands, int, Share share) const override {
    const auto [begin, end] = share.of(std::size_t(c_.input.channels), lanes());
    HWY_DYNAMIC_DISPATCH(depthwise)(c_, operands, begin, end);
    bias_gradient(c_, operands, share);
  }

 private:
  const Convolution c_;
};

}  // namespace

std::unique_ptr<Kernel> make_depthwise(const Convolution& convolution) {
  return std::make_unique<DepthwiseKernel>(convolution);
}

void pool(const PoolArguments& p, Share share) {
  const auto [begin, end] = share.of(std::size_t(p.input.channels), lanes());
  HWY_DYNAMIC_DISPATCH(pool_all)(p, begin, end);
}

void resample(const ResampleArguments& r, Share share) {
  const auto [begin, end] = share.of(std::size_t(r.output.height));
  HWY_DYNAMIC_DISPATCH(resample_rows)(r, int(begin), int(end));
}

}  // namespace millrace::kernels
#endif
