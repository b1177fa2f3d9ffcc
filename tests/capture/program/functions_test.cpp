// Functions of elements, images and updates against their definition in double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/capture/program/kernels_reference.h"

namespace millrace::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
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
  const float nan = std::nanf("");
  for (const Activated& a : kActivations) {
    const std::vector<float> made =
        mapped(a.function, {-kInfinity, -1e30f, -3000, 3000, 1e30f, nan});
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

TEST(Elementwise, OneValueThatIsNotFiniteIsFoundAnywhere) {
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
    for (std::size_t at : {0, 15, 16, 70, 98}) {
      TestFloats values(100);
      const UpdateOperands operands{.gradient = values.data(), .count = 99};
      EXPECT_TRUE(is_finite(operands, {}));
      values.data()[at] = bad;
      EXPECT_FALSE(is_finite(operands, {})) << bad << " at " << at;
    }
  }
}

TEST(Channels, SumsAreOverPixels) {
  for (const int channels : {1, 3, 16, 20, 33}) {
    const Layout layout{.height = 3, .width = 5, .channels = channels};
    TestFloats x(layout.floats()), sums(channels + 1);
    std::mt19937 random(5);
    x.fill(random);
    sums.data()[channels] = 77;
    for (int index = 0; index < 2; ++index)  // as two threads do it
      channel_sums(layout, x.data(), 0.5f, sums.data(), {.index = index, .count = 2});
    for (int c = 0; c < channels; ++c) {
      double sum = 0;
      for (std::size_t i = std::size_t(c); i < layout.floats(); i += std::size_t(channels))
        sum += double(x.data()[i]);
      EXPECT_NEAR(sums.data()[c], sum / 2, 1e-5);
    }
    EXPECT_EQ(sums.data()[channels], 77);
  }
}

TEST(Loss, MseAndItsGradientThroughTheSigmoid) {
  const Layout l{5, 7, 3};
  for (const bool through_sigmoid : {false, true}) {
    TestFloats p(l.floats()), t(l.floats()), g(l.floats());
    std::mt19937 random(5);
    p.fill(random);
    t.fill(random);
    const float loss = mse(l, p.data(), t.data(), g.data(), through_sigmoid, 0.5f);
    double sum = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double v = p.data()[i], d = v - t.data()[i];
      sum += d * d;
      EXPECT_NEAR(g.data()[i], 0.5 * 2 / 105 * d * (through_sigmoid ? v * (1 - v) : 1), 1e-8);
    }
    EXPECT_NEAR(loss, sum / 105, 1e-6);
    EXPECT_TRUE(g.border_is_untouched());
    EXPECT_EQ(loss, mse(l, p.data(), t.data(), nullptr, false));
  }
}

TEST(Images, PlanesThereAndBack) {
  for (const int channels : {1, 3, 5}) {
    const Layout l{4, 6, channels};
    TestFloats a(l.floats()), b(l.floats()), planes(l.floats());
    std::mt19937 random(6);
    a.fill(random);
    to_planes(a.data(), l, planes.data());
    EXPECT_EQ(planes.data()[24 * (channels - 1) + 7], a.data()[place(l, 1, 1, channels - 1)]);
    from_planes(planes.data(), b.data(), l);
    EXPECT_EQ(a.values(), b.values());
    EXPECT_TRUE(b.border_is_untouched());
  }
}

/// What an adam step with a correction left, by so many threads.
std::vector<float> updated_by(int threads, stages::CorrectionRule rule, bool spoilt) {
  constexpr std::size_t kCount = 9000;
  std::mt19937 random(9);
  TestFloats weights(kCount), to(kCount), gradient(kCount), mean(kCount), square(kCount);
  TestFloats steps(1), shift(kCount), change(kCount), old(3 * kCount), squares(kCount), step(1);
  for (TestFloats* floats : {&weights, &gradient, &mean, &change, &old}) floats->fill(random);
  if (spoilt) gradient.data()[kCount - 1] = NAN;
  std::int64_t newest = 1;
  bool stepped = true;
  step.data()[0] = 0.5f;
  stages::UpdateNumbers adam;
  adam.optimizer = 0;
  adam.lr = 0.01;
  adam.beta1 = 0.9;
  adam.beta2 = 0.999;
  adam.eps = 1e-8;
  adam.correction = {.rule = rule, .updates = 2, .decay = 0.5, .lambda = 2};
  std::vector<double> sums(update_sums(adam, kCount), NAN);
  UpdateOperands operands = {.from = weights.data(),
                             .to = to.data(),
                             .gradient = gradient.data(),
                             .state = {{mean.data(), square.data()}, steps.data()},
                             .memory = {.shift = shift.data(), .change = change.data()},
                             .sums = sums.data(),
                             .count = kCount};
  if (rule >= stages::CorrectionRule::gap_aware) {
    operands.memory.old = old.data();
    operands.memory.newest = &newest;
    operands.memory.square = squares.data();
  }
  if (rule == stages::CorrectionRule::gap_aware) {
    operands.memory.step = step.data();
    operands.memory.stepped = &stepped;
  }
  std::vector<char> finite(std::size_t(threads), 0);
  Team team(threads);
  team.run([&](Share share) {
    finite[std::size_t(share.index)] = is_finite(operands, share);
    team.meet();
    const bool all = std::count(finite.begin(), finite.end(), 1) == threads;
    all ? update(adam, operands, 0.5, share) : keep(operands, share);
    team.meet();
    if (all && share.index == 0) count_step(adam, operands);
  });
  std::vector<float> all = {steps.data()[0], float(newest)};
  for (TestFloats* floats : {&to, &mean, &square, &shift, &change, &old, &squares, &step})
    all.insert(all.end(), floats->data(), floats->data() + floats->size());
  return all;
}

TEST(Shares, OfAnUpdateAreBitsOfTheWholeAndOneThreadsNaNStopsAll) {
  using stages::CorrectionRule;
  for (const CorrectionRule rule :
       {CorrectionRule::none, CorrectionRule::discrepancy, CorrectionRule::weight_prediction,
        CorrectionRule::gap_aware, CorrectionRule::dc_asgd}) {
    for (const bool spoilt : {false, true}) {
      const std::vector<float> expected = updated_by(1, rule, spoilt);
      EXPECT_EQ(expected[0], spoilt ? 0 : 1);
      for (const int threads : {2, 3, 5})
        EXPECT_EQ(updated_by(threads, rule, spoilt), expected)
            << threads << " threads, correction " << int(rule);
    }
  }
}

}  // namespace
}  // namespace millrace::kernels
