#include "stages/stage.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace millrace::stages {
namespace {

const ImageShape kPicture{3, 6, 6};

Stage make(StageRange range, double lr = 0.1) {
  const auto network = build_network({.layers = 2, .features = 4, .kernel = 3}, kPicture);
  Stage stage(network, range, {.lr = lr}, at::kCPU);
  load_state(stage.parameters(), initial_state(*network, 1));
  return stage;
}

const at::Tensor x = at::full({1, 3, 6, 6}, 0.3f), y = at::full({1, 3, 6, 6}, 0.7f);

TEST(Stage, UpdateAppliesTheMeanOfItsGradients) {
  Stage once = make({0, 4, true, true}), twice = make({0, 4, true, true});
  auto kept = once.forward({x}, y);
  once.backward(kept, {});
  once.update({.count = 1}, 1.0);
  for (int i = 0; i < 2; ++i) {
    kept = twice.forward({x}, y);
    twice.backward(kept, {}, {.first = twice.count_gradient()});
  }
  twice.update(twice.advance(), 1.0);
  EXPECT_TRUE(at::equal(once.parameters().flat(), twice.parameters().flat()))
      << "the mean of two equal gradients";
}

TEST(Stage, TheFirstGivesNoInputGradient) {
  Stage first = make({0, 2, true, false}), second = make({2, 4, false, true});
  auto a = first.forward({x});
  auto b = second.forward(a.outputs, y);
  const Tensors gradients = second.backward(b, {});
  ASSERT_EQ(gradients.size(), 1u);
  EXPECT_EQ(gradients[0].sizes(), at::IntArrayRef({1, 4, 6, 6}));
  EXPECT_TRUE(first.backward(a, gradients).empty());
}

}  // namespace
}  // namespace millrace::stages
