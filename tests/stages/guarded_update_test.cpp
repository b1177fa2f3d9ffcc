// An update's formulas, with the rate as a number and as a tensor.
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
  all.push_back({.kind = "adam", .lr = 0.01, .clip = 0.5});
  return all;
}

TEST(Optimizer, FormulasDoTheSameWithTheRateOnADevice) {
  const c10::NoGradGuard no_grad;
  for (const OptimizerSpec& spec : specs()) {
    at::Tensor plain = numbers(0), there = numbers(0);
    const Optimizer by_number(spec, plain), by_tensor(spec, there);
    for (int step = 1; step <= 10; ++step) {
      at::Tensor gradient = numbers(step), other = numbers(step);
      apply_formula(update_numbers(spec, 1), 0.005, plain, gradient, by_number.buffers());
      apply_formula(update_numbers(spec, 1), at::full({}, 0.005, at::kDouble), there, other,
                    by_tensor.buffers());
    }
    EXPECT_TRUE(at::allclose(there, plain, 1e-5, 1e-7)) << spec.kind << " " << spec.momentum;
  }
}

TEST(OrthogonalGradients, LoseWhatTheirTensorsMeanForetells) {
  const c10::NoGradGuard no_grad;
  // One element between the tensors belongs to neither.
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
