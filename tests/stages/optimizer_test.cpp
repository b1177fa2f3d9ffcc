// What a gradient loses to the mean of those before it.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "stages/optimizer.h"

namespace millrace::stages {
namespace {

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
