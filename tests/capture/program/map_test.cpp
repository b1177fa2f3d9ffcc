// Functions of elements against their definition in double precision.
#include "capture/program/kernels/map.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/capture/program/kernels_reference.h"

namespace millrace::kernels {
namespace {

constexpr float kA = 0.7f, kB = 1.3f, kC = 0.9f;  // a map's numbers

double sigmoid_of(double x) {
  return 1 / (1 + std::exp(-x));
}
double clamped(double x, double least, double most) {
  return x < least ? least : x > most ? most : x;
}
double gelu_of(double x) {
  return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
}
double gelu_tanh_of(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double elu_of(double x) {
  return x > 0 ? kB * x : double(kB) * kA * std::expm1(kC * x);
}

struct Definition {
  Function function;
  std::function<double(double, double)> of;
};
/// Of one operand; a gradient of them is by a difference quotient.
struct Activated {
  Function function, gradient;
  std::function<double(double)> of;
  bool by_result = false;
};

const std::vector<Definition> kDefinitions = {
    {Function::add, [](double x, double y) { return x + y; }},
    {Function::subtract, [](double x, double y) { return x - y; }},
    {Function::multiply, [](double x, double y) { return x * y; }},
    {Function::divide, [](double x, double y) { return x / y; }},
    {Function::negate, [](double x, double) { return -x; }},
    {Function::absolute, [](double x, double) { return std::abs(x); }},
    {Function::sign, [](double x, double) { return x > 0   ? 1.0
                                                   : x < 0 ? -1.0
                                                           : 0.0; }}};

const std::vector<Activated> kActivations = {
    {Function::relu, Function::relu_gradient, [](double x) { return x > 0 ? x : 0; }, true},
    {Function::sigmoid, Function::sigmoid_gradient, sigmoid_of, true},
    {Function::tanh, Function::tanh_gradient, [](double x) { return std::tanh(x); }, true},
    {Function::silu, Function::silu_gradient, [](double x) { return x * sigmoid_of(x); }},
    {Function::gelu, Function::gelu_gradient, gelu_of},
    {Function::gelu_tanh, Function::gelu_tanh_gradient, gelu_tanh_of},
    {Function::hard_sigmoid, Function::hard_sigmoid_gradient,
     [](double x) { return clamped(x + 3, 0, 6) / 6; }},
    {Function::hard_swish, Function::hard_swish_gradient,
     [](double x) { return x * clamped(x + 3, 0, 6) / 6; }},
    {Function::clamp, Function::clamp_gradient, [](double x) { return clamped(x, kA, kB); }},
    {Function::leaky_relu, Function::leaky_relu_gradient,
     [](double x) { return x > 0 ? x : kA * x; }},
    {Function::elu, Function::elu_gradient, elu_of},
    {Function::elu, Function::elu_result_gradient, elu_of, true}};

/// Calls check() with each instruction set that this machine and this build have.
void each_instruction_set(const std::function<void()>& check) {
  for (auto left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    const auto target = left & ~(left - 1);
    if (target & (HWY_SSE4 | HWY_SSSE3)) continue;  // not built
    hwy::GetChosenTarget().Update(target);
    check();
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

std::vector<float> mapped(Function function, const std::vector<float>& left,
                          const std::vector<float>& right = {}) {
  std::vector<float> made(left.size());
  map({.function = function, .numbers = {kA, kB, kC}, .row = left.size()}, left.data(),
      right.empty() ? nullptr : right.data(), made.data());
  return made;
}

TEST(Map, EveryFunctionIsItsDefinition) {
  std::vector<float> x, y;
  for (int i = -900; i <= 900; ++i) {
    x.push_back(float(i) / 100 + 0.0031f);
    y.push_back(float((i * 37) % 400) / 100 + 0.5003f);
  }
  each_instruction_set([&] {
    for (const Definition& d : kDefinitions) {
      const std::vector<float> made = mapped(d.function, x, y);
      for (std::size_t i = 0; i < x.size(); ++i)
        ASSERT_NEAR(made[i], d.of(x[i], y[i]), 1e-6 * (1 + std::abs(made[i])))
            << name_of(d.function) << " of " << x[i] << " and " << y[i];
    }
    for (const Activated& a : kActivations) {
      const std::vector<float> made = mapped(a.function, x);
      const std::vector<float> slope = mapped(a.gradient, y, a.by_result ? made : x);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double step = 1e-5, at = x[i];
        ASSERT_NEAR(made[i], a.of(at), 1e-6 * (1 + std::abs(at))) << name_of(a.function) << at;
        const double expected = y[i] * (a.of(at + step) - a.of(at - step)) / (2 * step);
        ASSERT_NEAR(slope[i], expected, 5e-6 * (1 + std::abs(y[i])))
            << name_of(a.gradient) << " at " << at;
      }
    }
  });
}

TEST(Map, LargeNumbersAndNaNGoThrough) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (const Activated& a : kActivations) {
    const std::vector<float> made =
        mapped(a.function, {-infinity, -1e30f, -3000, 3000, 1e30f, nan});
    for (std::size_t i = 1; i < 5; ++i) EXPECT_FALSE(std::isnan(made[i])) << name_of(a.function);
    EXPECT_TRUE(std::isnan(made[5])) << name_of(a.function);
    EXPECT_NEAR(made[3], a.of(3000), 1e-3) << name_of(a.function);
    EXPECT_NEAR(made[2], a.of(-3000), 1e-3) << name_of(a.function);
  }
  EXPECT_EQ(mapped(Function::relu_gradient, {3}, {nan})[0], 3);
}

TEST(Map, OperandsAreSpreadAndThreadsShare) {
  constexpr std::size_t kRows = 5, kRow = 37;
  TestFloats x(kRows * kRow), channels(kRow), pixels(kRows);
  std::mt19937 random(3);
  for (TestFloats* floats : {&x, &channels, &pixels}) floats->fill(random);
  struct Case {
    Operand left, right;
    float* values;
  };
  for (const Case& c : {Case{{kRow, true}, {0, true}, channels.data()},
                        Case{{kRow, true}, {1, false}, pixels.data()},
                        Case{{kRow, true}, {0, false}, pixels.data()}}) {
    for (const bool swapped : {false, true}) {
      Map m{.function = Function::subtract,
            .rows = kRows,
            .row = kRow,
            .left = c.left,
            .right = c.right};
      const float *left = x.data(), *right = c.values;
      if (swapped) {
        std::swap(m.left, m.right);
        std::swap(left, right);
      }
      std::vector<float> made(kRows * kRow + 1, 77);
      for (int index = 0; index < 3; ++index)
        map(m, left, right, made.data(), {.index = index, .count = 3});
      EXPECT_EQ(made.back(), 77);
      for (std::size_t i = 0; i < kRows * kRow; ++i) {
        const std::size_t r = i / kRow, k = i % kRow;
        const float other = c.values[r * c.right.row + (c.right.each ? k : 0)];
        EXPECT_EQ(made[i], swapped ? other - x.data()[i] : x.data()[i] - other);
      }
    }
  }
}

}  // namespace
}  // namespace millrace::kernels
