// Gradients of large weights that an update makes itself: the bits are those of a gradient that was
// stored, which then is never read.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cmath>

#include "capture/program/program.h"
#include "stages/optimizer.h"
#include "tests/capture/program/kernels_reference.h"

namespace millrace::program {
namespace {

constexpr std::int64_t kOut = 130, kIn = 100, kWeights = kOut * kIn * 9, kAll = kWeights + kOut + 7;

/// A backward of one convolution, whose weights' and bias's gradients lie in a flat buffer between
/// other numbers, and an update of all.
struct Backward {
  explicit Backward(kernels::Team* team)
      : program(
            [this] {
              const at::Tensor w = weights.narrow(0, 3, kWeights).view({kOut, kIn, 3, 3});
              const auto [dx, dw, db] =
                  at::convolution_backward(dy, x, w, {{kOut}}, {1, 1}, {1, 1}, {1, 1}, false,
                                           {0, 0}, 1, {false, true, true});
              gradient.narrow(0, 3, kWeights).view_as(dw).copy_(dw);
              gradient.narrow(0, 3 + kWeights, kOut).copy_(db);
            },
            arena, {.team = team, .late = &late}),
        update([this] { optimizer.update(weights, weights, gradient, 1, rate, skipped); }, arena,
               {.team = team, .late = &late}) {}

  static at::Tensor image(std::int64_t channels) {
    return at::empty({1, channels, 3, 4}, at::MemoryFormat::ChannelsLast)
        .uniform_(-1, 1, at::detail::createCPUGenerator(channels));
  }
  static at::Tensor flat(std::uint64_t seed) {
    return at::rand({kAll}, at::detail::createCPUGenerator(seed)) - 0.5;
  }
  void begin() {
    weights.copy_(flat(1));
    gradient.copy_(flat(2));
    for (at::Tensor& buffer : state) buffer.zero_();
    skipped.zero_();
  }
  std::vector<at::Tensor> end() const {
    std::vector<at::Tensor> all = {weights.clone(), skipped.clone()};
    for (const at::Tensor& buffer : state) all.push_back(buffer.clone());
    return all;
  }

  at::Tensor x = image(kIn), dy = image(kOut), weights = flat(1), gradient = flat(2);
  stages::Optimizer optimizer{{.kind = "adam", .lr = 1e-2, .weight_decay = 0.01}, weights};
  std::vector<at::Tensor> state = optimizer.buffers();
  at::Tensor rate = at::ones({}, at::kDouble), skipped = at::zeros({});
  Arena arena;
  LateGradients late;
  Program program, update;
};

void expect_the_bits_of_a_stored_gradient(Backward& step, kernels::Team* team, float skipped) {
  step.begin();
  step.program.run();
  ASSERT_EQ(step.late.waiting.size(), 1u);
  step.late.make(team);
  step.update.run();
  const std::vector<at::Tensor> expected = step.end();
  EXPECT_EQ(expected[1].item<float>(), skipped);

  step.begin();
  step.program.run();
  step.gradient.narrow(0, 3, kWeights).fill_(NAN);  // nobody looks
  step.update.run();
  EXPECT_TRUE(step.late.waiting.empty());
  const std::vector<at::Tensor> got = step.end();
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], expected[i])) << i;
}

TEST(LateGradient, IsUpdatedByAsIfItWereStored) {
  kernels::each_instruction_set([] {
    SCOPED_TRACE(kernels::instruction_set());
    for (const int threads : {1, 3}) {
      kernels::Team team(threads);
      kernels::Team* const shared = threads > 1 ? &team : nullptr;
      Backward step(shared);
      expect_the_bits_of_a_stored_gradient(step, shared, 0);
      // Finite, though no bound says so: the large numbers never meet.
      step.x[0][0][0][0] = 1e30f;
      step.dy[0][0][2][3] = 1e20f;
      expect_the_bits_of_a_stored_gradient(step, shared, 0);
      step.dy[0][0][1][1] = 1e20f;
      expect_the_bits_of_a_stored_gradient(step, shared, 1);
      step.x[0][0][0][0] = NAN;
      expect_the_bits_of_a_stored_gradient(step, shared, 1);
    }
  });
}

TEST(LateGradient, AnUpdateOfOtherWeightsTakesNone) {
  Backward step(nullptr), other(nullptr);
  step.program.run();
  std::swap(step.late, other.late);
  other.update.run();
  EXPECT_TRUE(other.late.waiting.empty());
  EXPECT_FALSE(at::equal(step.gradient, step.flat(2))) << "it is stored instead";
}

}  // namespace
}  // namespace millrace::program
