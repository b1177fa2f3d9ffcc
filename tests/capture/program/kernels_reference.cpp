#include "tests/capture/program/kernels_reference.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace millrace::kernels {
namespace {

constexpr std::size_t kGuard = 64;
constexpr float kGuardValue = 12345;

float* aligned(std::vector<float>& memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  return memory.data() + (64 - address % 64) % 64 / sizeof(float);
}

void fill_range(std::mt19937& random, float* begin, std::size_t count) {
  std::uniform_real_distribution<float> range(-1, 1);
  for (std::size_t i = 0; i < count; ++i) begin[i] = range(random);
}

/// Calls visit(output y, x, ky, kx, input y, x) for each meeting of an output pixel and a tap.
template <typename Visit>
void each_tap(const Convolution& c, const Visit& visit) {
  const auto [rows, columns] = window_of(c);
  for (int y = 0; y < c.output.height; ++y) {
    for (int x = 0; x < c.output.width; ++x) {
      for (int ky = 0; ky < rows.count; ++ky) {
        for (int kx = 0; kx < columns.count; ++kx) {
          const int from_y = y * rows.stride + ky * rows.dilation - rows.padding;
          const int from_x = x * columns.stride + kx * columns.dilation - columns.padding;
          if (from_y < 0 || from_y >= c.input.height) continue;
          if (from_x < 0 || from_x >= c.input.width) continue;
          visit(y, x, ky * columns.count + kx, from_y, from_x);
        }
      }
    }
  }
}

/// Calls visit(output channel, input channel, place of the weight of the tap).
template <typename Visit>
void each_pair(const Convolution& c, int tap, const Visit& visit) {
  const int inputs = c.input.channels / c.groups, outputs = c.output.channels / c.groups;
  for (int o = 0; o < c.output.channels; ++o) {
    for (int i = 0; i < inputs; ++i)
      visit(o, o / outputs * inputs + i,
            std::size_t((o * inputs + i) * taps_of(window_of(c)) + tap));
  }
}

std::size_t weights_of(const Convolution& c) {
  return std::size_t(c.input.channels / c.groups * c.output.channels * taps_of(window_of(c)));
}

class Sums {
 public:
  explicit Sums(std::size_t count)
      : made_{std::vector<double>(count), std::vector<double>(count)} {}
  void add(std::size_t i, double value) {
    made_.values[i] += value;
    made_.magnitudes[i] += std::abs(value);
  }
  Reference made_;
};

std::size_t index(const Layout& l, int y, int x, int c) {
  return (std::size_t(y) * l.width + x) * l.channels + c;
}

}  // namespace

TestFloats::TestFloats(std::size_t count, float value)
    : count_(count), memory_(count + 2 * kGuard, value), data_(aligned(memory_)) {}

void TestFloats::fill(std::mt19937& random) {
  fill_range(random, data_, count_);
}

TestImage::TestImage(const Layout& layout)
    : layout_(layout), memory_(layout.floats() + 3 * kGuard, kGuardValue) {
  data_ = aligned(memory_) + kGuard;
  std::fill(data_, data_ + layout.floats(), 0.0f);
}

double TestImage::value(int y, int x, int c) {
  if (y < 0 || y >= layout_.height || x < 0 || x >= layout_.width) return 0;
  return at(y, x, c);
}

void TestImage::fill(std::mt19937& random) {
  fill_range(random, data_, layout_.floats());
}

bool TestImage::border_is_untouched() {
  for (std::size_t i = 1; i <= kGuard; ++i) {
    if (data_[-std::ptrdiff_t(i)] != kGuardValue) return false;
    if (data_[layout_.floats() + i - 1] != kGuardValue) return false;
  }
  return true;
}

std::vector<float> TestImage::values() {
  return {data_, data_ + layout_.floats()};
}

Reference reference_forward(const Convolution& c, TestImage& x, const float* weights,
                            const float* bias) {
  const Layout& out = c.output;
  Sums sums(std::size_t(out.height) * out.width * out.channels);
  for (std::size_t i = 0; i < sums.made_.values.size() && bias; ++i)
    sums.add(i, bias[i % out.channels]);
  each_tap(c, [&](int y, int at_x, int tap, int from_y, int from_x) {
    each_pair(c, tap, [&](int o, int i, std::size_t weight) {
      sums.add(index(out, y, at_x, o), x.value(from_y, from_x, i) * weights[weight]);
    });
  });
  for (double& v : sums.made_.values) {
    if (c.activation == Activation::kRelu) v = v < 0 ? 0 : v;
    if (c.activation == Activation::kSigmoid) v = 1 / (1 + std::exp(-v));
  }
  return sums.made_;
}

Reference reference_data_gradient(const Convolution& c, TestImage& dy, const float* weights,
                                  TestImage* mask) {
  const Layout& in = c.input;
  Sums sums(std::size_t(in.height) * in.width * in.channels);
  each_tap(c, [&](int y, int x, int tap, int from_y, int from_x) {
    each_pair(c, tap, [&](int o, int i, std::size_t weight) {
      sums.add(index(in, from_y, from_x, i), dy.value(y, x, o) * weights[weight]);
    });
  });
  if (mask) {
    const std::vector<float> masks = mask->values();
    for (std::size_t i = 0; i < masks.size(); ++i)
      if (masks[i] <= 0) sums.made_.values[i] = 0;
  }
  return sums.made_;
}

Reference reference_weight_gradient(const Convolution& c, TestImage& x, TestImage& dy) {
  Sums sums(weights_of(c));
  each_tap(c, [&](int y, int at_x, int tap, int from_y, int from_x) {
    each_pair(c, tap, [&](int o, int i, std::size_t weight) {
      sums.add(weight, x.value(from_y, from_x, i) * dy.value(y, at_x, o));
    });
  });
  return sums.made_;
}

Reference reference_bias_gradient(TestImage& dy) {
  Sums sums(dy.layout().channels);
  const std::vector<float> values = dy.values();
  for (std::size_t i = 0; i < values.size(); ++i) sums.add(i % dy.layout().channels, values[i]);
  return sums.made_;
}

TestConvolution::TestConvolution(const Convolution& c)
    : x(c.input),
      y(c.output),
      dy(c.output),
      dx(c.input),
      mask(c.input),
      weights(weights_of(c)),
      bias(c.output.channels),
      weight_gradient(weights.size()),
      bias_gradient(bias.size()) {
  std::mt19937 random(7);
  for (TestImage* image : {&x, &dy, &mask}) image->fill(random);
  for (TestFloats* floats : {&weights, &bias, &weight_gradient, &bias_gradient})
    floats->fill(random);
  for (std::size_t i = 0; i < c.input.floats(); ++i)
    mask.first()[i] = std::max(0.0f, mask.first()[i]);
}

Operands TestConvolution::operands(const Convolution& c) {
  return {.x = x.first(),
          .y = y.first(),
          .dy = dy.first(),
          .dx = dx.first(),
          .mask = c.masked ? mask.first() : nullptr,
          .packed = weights.data(),
          .bias = bias.data(),
          .weight_gradient = weight_gradient.data(),
          .bias_gradient = bias_gradient.data()};
}

}  // namespace millrace::kernels
