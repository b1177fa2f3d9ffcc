#include "tests/capture/program/kernels_reference.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <list>

namespace millrace::kernels {
namespace {

constexpr std::size_t kGuard = 64;
constexpr float kGuardValue = 12345;

/// Calls visit(output y, x, tap, input y, x) for each meeting of an output pixel and a tap.
template <typename Visit>
void each_tap(const Convolution& c, const Visit& visit) {
  const auto [rows, columns] = window_of(c);
  for (int y = 0; y < c.output.height; ++y) {
    for (int x = 0; x < c.output.width; ++x) {
      for (int tap = 0; tap < rows.count * columns.count; ++tap) {
        const int from_y = y * rows.stride + tap / columns.count * rows.dilation - rows.padding;
        const int from_x =
            x * columns.stride + tap % columns.count * columns.dilation - columns.padding;
        if (from_y < 0 || from_y >= c.input.height) continue;
        if (from_x < 0 || from_x >= c.input.width) continue;
        visit(y, x, tap, from_y, from_x);
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
std::size_t made_by(const Convolution& c) {
  return c.pass == Pass::kForward          ? c.output.floats()
         : c.pass == Pass::kWeightGradient ? weights_of(c)
                                           : c.input.floats();
}

}  // namespace

TestFloats::TestFloats(std::size_t count, float value)
    : count_(count), memory_(count + 3 * kGuard, kGuardValue) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
  data_ = memory_.data() + (64 - address % 64) % 64 / sizeof(float) + kGuard;
  std::fill(data_, data_ + count, value);
}

void TestFloats::fill(std::mt19937& random) {
  std::uniform_real_distribution<float> range(-1, 1);
  std::generate(data_, data_ + count_, [&] { return range(random); });
}

bool TestFloats::border_is_untouched() const {
  const auto is_guard = [](float value) { return value == kGuardValue; };
  return std::all_of(data_ - kGuard, data_, is_guard) &&
         std::all_of(data_ + count_, data_ + count_ + kGuard, is_guard);
}

std::string words(const Shape& s) {
  return std::to_string(s.height) + "x" + std::to_string(s.width) + " " + std::to_string(s.in) +
         "->" + std::to_string(s.out) + " k" + std::to_string(s.kernel) + " stride " +
         std::to_string(s.stride) + (s.window ? " window " : " ") + std::to_string(s.groups) +
         " groups with " + instruction_set() + " ";
}

Convolution convolution(const Shape& s, Pass pass) {
  Convolution c{.pass = pass,
                .input = {s.height, s.width, s.in},
                .kernel = s.kernel,
                .stride = s.stride,
                .window = s.window,
                .groups = s.groups};
  const auto [rows, columns] = window_of(c);
  c.output = {rows.outputs(s.height), columns.outputs(s.width), s.out};
  return c;
}

std::vector<Convolution> variants(const Shape& shape, Pass pass) {
  std::vector<Convolution> all(pass == Pass::kForward ? 3 : 2, convolution(shape, pass));
  for (std::size_t i = 0; pass == Pass::kForward && i < 3; ++i) all[i].activation = Activation(i);
  all[1].masked = pass == Pass::kDataGradient;
  all[1].accumulate = pass == Pass::kWeightGradient;
  return all;
}

TestConvolution::TestConvolution(const Convolution& c)
    : c(c),
      source((c.pass == Pass::kForward ? c.input : c.output).floats()),
      x(c.input.floats()),
      weights(weights_of(c)),
      bias(c.output.channels),
      mask(c.input.floats()),
      made(made_by(c)),
      weight_gradient(weights_of(c)),
      bias_gradient(c.output.channels) {
  std::mt19937 random(7);
  for (TestFloats* floats : {&source, &x, &weights, &bias, &mask, &made, &bias_gradient})
    floats->fill(random);
  for (std::size_t i = 0; i < mask.size(); ++i) mask.data()[i] = std::max(0.0f, mask.data()[i]);
}

void TestConvolution::run(const std::string& name, int threads) {
  const auto kernel = make_kernel(c, name);
  EXPECT_EQ(kernel->name, name);
  TestFloats shared(kernel->shared_floats(threads), NAN);
  std::list<TestFloats> scratch;
  for (int i = 0; i < threads; ++i) scratch.emplace_back(kernel->scratch_floats(), NAN);
  Operands all{.source = source.data(), .made = made.data(), .shared = shared.data()};
  if (c.pass == Pass::kForward) all.bias = bias.data();
  if (c.masked) all.mask = mask.data();
  if (c.pass != Pass::kWeightGradient) all.weights = weights.data();
  if (c.pass == Pass::kGradients) all.weight_gradient = weight_gradient.data();
  if (makes_weights(c.pass)) {
    all.x = x.data();
    all.bias_gradient = bias_gradient.data();
  }
  Team team(threads);
  team.run([&](Share share) {
    Operands mine = all;
    mine.scratch = std::next(scratch.begin(), share.index)->data();
    for (int phase = 0; phase < kernel->phases(threads); ++phase) {
      kernel->run(mine, phase, share);
      team.meet();
    }
  });
  EXPECT_TRUE(made.border_is_untouched() && weight_gradient.border_is_untouched()) << name;
}

Reference reference(TestConvolution& given) {
  const Convolution& c = given.c;
  Reference made(given.made.size());
  for (std::size_t i = 0; c.pass == Pass::kForward && i < given.made.size(); ++i)
    made.add(i, given.bias.data()[i % given.bias.size()]);
  each_tap(c, [&](int y, int x, int tap, int from_y, int from_x) {
    each_pair(c, tap, [&](int o, int i, std::size_t weight) {
      const std::size_t out = place(c.output, y, x, o), in = place(c.input, from_y, from_x, i);
      const double w = given.weights.data()[weight];
      if (c.pass == Pass::kForward) made.add(out, w * given.source.data()[in]);
      if (c.pass == Pass::kDataGradient) made.add(in, w * given.source.data()[out]);
      if (c.pass == Pass::kWeightGradient)
        made.add(weight, double(given.x.data()[in]) * given.source.data()[out]);
    });
  });
  for (std::size_t i = 0; i < made.values.size(); ++i) {
    double& v = made.values[i];
    if (c.activation == Activation::kRelu) v = v < 0 ? 0 : v;
    if (c.activation == Activation::kSigmoid) v = 1 / (1 + std::exp(-v));
    if (c.masked && given.mask.data()[i] <= 0) v = 0;
    if (c.accumulate) made.add(i, given.made.data()[i]);
  }
  return made;
}

Reference reference_bias_gradient(TestConvolution& given) {
  const std::size_t channels = given.bias_gradient.size();
  Reference made(channels);
  for (std::size_t i = 0; i < given.source.size(); ++i)
    made.add(i % channels, given.source.data()[i]);
  for (std::size_t i = 0; given.c.accumulate && i < channels; ++i)
    made.add(i, given.bias_gradient.data()[i]);
  return made;
}

void each_instruction_set(const std::function<void()>& check) {
  for (auto left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    const auto target = left & ~(left - 1);
    if (target & (HWY_SSE4 | HWY_SSSE3)) continue;  // not built
    hwy::GetChosenTarget().Update(target);
    check();
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace millrace::kernels
