// The update that a recording can hold: Optimizer's formulas.
#include "stages/guarded_update.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "stages/optimizer.h"

namespace millrace::stages {
namespace {

at::Tensor numbers(std::uint64_t seed) {
  return at::randn({100}, at::detail::createCPUGenerator(seed));
}

std::vector<OptimizerSpec> specs() {
  std::vector<OptimizerSpec> all;
  for (const std::string& kind : optimizer_names()) {
    for (const double momentum : {0.0, 0.9}) {
      for (const double decay : {0.0, 0.1})
        all.push_back({.kind = kind, .lr = 0.01, .momentum = momentum, .weight_decay = decay});
    }
  }
  all.push_back({.kind = "sgd", .lr = 0.01, .momentum = 0.9, .spike_delay = 3});
  return all;
}

TEST(GuardedUpdate, DoesWhatTheOptimizerDoes) {
  const c10::NoGradGuard no_grad;
  for (const OptimizerSpec& spec : specs()) {
    at::Tensor plain = numbers(0), guarded = numbers(0);
    Optimizer by_step(spec, plain), by_guard(spec, guarded);
    by_step.set_rate(0.5);
    for (int step = 1; step <= 10; ++step) {
      at::Tensor mean = numbers(step);
      by_step.step(plain, mean);
      guarded_update(update_numbers(spec, 4),
                     {.from = guarded,
                      .to = guarded,
                      .gradient = numbers(step) * 4,
                      .state = by_guard.buffers(),
                      .memory = {}},
                     at::full({}, 0.5, at::kDouble), at::ones({}, at::kBool));
    }
    EXPECT_TRUE(at::allclose(guarded, plain, 1e-5, 1e-7)) << spec.kind << " " << spec.momentum;
  }
}

TEST(OrthogonalGradients, LoseWhatTheirTensorsMeanForetells) {
  const c10::NoGradGuard no_grad;
  // One place between the tensors is nobody's.
  Optimizer optimizer({.orthogonal = 0.5}, at::zeros({6}), {0, 3, 4, 2});
  const at::Tensor mean = optimizer.state().back().second;
  const auto projected = [&](std::vector<float> values, int count = 1) {
    at::Tensor gradient = at::tensor(values);
    optimizer.orthogonalize(gradient, count);
    return gradient;
  };
  EXPECT_TRUE(at::equal(projected({1, 0, 0, 0, 2, 2}),
                        at::tensor({1., 0., 0., 0., 2., 2.}).to(at::kFloat)));
  EXPECT_TRUE(at::equal(projected({4, 2, 0, 0, 3, 1}, 2),
                        at::tensor({0., 2., 0., 0., 1., -1.}).to(at::kFloat)));
  const at::Tensor want = at::tensor({1.25, 0.5, 0., 0., 1.25, 0.75}).to(at::kFloat);
  EXPECT_TRUE(at::equal(mean, want)) << mean;
  EXPECT_FALSE(at::isfinite(projected({NAN, 0, 0, 0, 0, 0})).all().item<bool>());
  EXPECT_TRUE(at::equal(mean, want)) << "kept where the gradient is not finite";
  const float huge = 3e38F;
  EXPECT_TRUE(
      at::equal(projected({huge, huge, 0, 0, 0, 0}), at::tensor({huge, huge, 0.F, 0.F, 0.F, 0.F})));
}

}  // namespace
}  // namespace millrace::stages
