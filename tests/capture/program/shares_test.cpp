// Threads that share an operation leave the bits that one thread leaves.
#include <gtest/gtest.h>

#include <cmath>
#include <list>

#include "tests/capture/program/kernels_reference.h"

namespace millrace::kernels {
namespace {

struct SharedShape {
  int height, width, in, out, kernel, stride = 1, groups = 1;
  std::optional<TapGrid> window{};
};

/// Few and many channels against the threads, fewer rows than threads, strides, 3-channel edges.
const std::vector<SharedShape> kShapes = {
    {1, 1, 1, 1, 1},
    {2, 3, 3, 16, 7},
    {16, 16, 16, 16, 5},
    {13, 17, 3, 32, 5},
    {13, 17, 16, 3, 5},
    {6, 20, 48, 48, 5},
    {5, 33, 17, 19, 3},
    {2, 2, 64, 128, 3},
    {9, 7, 16, 32, 3, 2},
    {8, 9, 16, 16, 1, 2},
    {30, 20, 40, 33, 1},
    {7, 7, 512, 130, 1},
    {70, 3, 16, 16, 3},
    {3, 5, 130, 70, 3},
    {50, 50, 16, 16, 5},
    {50, 110, 32, 16, 3},
    {40, 35, 8, 9, 15},
    {6, 7, 40, 40, 3, 1, 40},
    {9, 8, 24, 12, 3, 2, 4},
    {8, 9, 20, 33, 0, 0, 1, TapGrid{{2, 2, 0, 1}, {3, 1, 2, 2}}}};

/// What a pass made of the same numbers, by so many threads.
std::vector<float> made_by(int threads, const Convolution& c, const std::string& name) {
  const auto kernel = make_kernel(c, name);
  TestConvolution memory(c);
  TestFloats shared(kernel->shared_floats(threads), NAN);
  std::list<TestFloats> packed, scratch;
  for (int i = 0; i < threads; ++i) {
    packed.emplace_back(kernel->packed_floats(), NAN);
    scratch.emplace_back(kernel->scratch_floats(), NAN);
  }
  Team team(threads);
  team.run([&](Share share) {
    float* const mine = std::next(packed.begin(), share.index)->data();
    kernel->pack(memory.weights.data(), mine, share);
    Operands operands = memory.operands(c);
    if (kernel->packed_floats() > 0) operands.packed = mine;
    operands.scratch = std::next(scratch.begin(), share.index)->data();
    operands.shared = shared.data();
    for (int phase = 0; phase < kernel->phases(threads); ++phase) {
      kernel->run(operands, phase, share);
      team.meet();
    }
  });
  std::vector<float> all;
  for (TestImage* image : {&memory.y, &memory.dx}) {
    EXPECT_TRUE(image->border_is_untouched());
    const std::vector<float> values = image->values();
    all.insert(all.end(), values.begin(), values.end());
  }
  for (TestFloats* floats : {&memory.weight_gradient, &memory.bias_gradient})
    all.insert(all.end(), floats->data(), floats->data() + floats->size());
  return all;
}

TEST(Shares, OfAConvolutionAreBitsOfTheWhole) {
  for (const SharedShape& s : kShapes) {
    for (const Pass pass : {Pass::kForward, Pass::kDataGradient, Pass::kWeightGradient}) {
      Convolution c;
      c.pass = pass;
      c.input = {s.height, s.width, s.in};
      c.kernel = s.kernel;
      c.stride = s.stride;
      c.groups = s.groups;
      c.window = s.window;
      c.precision = Precision::kBf16;  // the kernels of float32, and where the core has more, those
      const auto [rows, columns] = window_of(c);
      c.output = {rows.outputs(s.height), columns.outputs(s.width), s.out};
      c.masked = pass == Pass::kDataGradient;
      c.accumulate = pass == Pass::kWeightGradient;
      for (const std::string& name : candidates(c)) {
        const std::vector<float> expected = made_by(1, c, name);
        for (const int threads : {2, 3, 4})
          EXPECT_EQ(made_by(threads, c, name), expected)
              << s.height << "x" << s.width << " " << s.in << " to " << s.out << " k" << s.kernel
              << " by " << name << ", " << threads << " threads";
      }
    }
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
  adam.optimizer = kAdam;
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
