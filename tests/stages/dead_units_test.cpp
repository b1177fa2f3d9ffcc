#include "stages/dead_units.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

namespace millrace::stages {
namespace {

/// Dead units of a stage of two convolutions after `updates`, with a bias of -100 in `silenced`
/// channels of the first.
int dead_after(int updates, int silenced, const std::string& activation,
               const std::vector<std::string>& freeze = {}) {
  const auto network = build_network(
      {.layers = 2, .features = 4, .kernel = 3, .activation = activation, .freeze = freeze},
      {3, 6, 6});
  Stage stage(network, {0, 4, true, true}, {.lr = 1e-4}, at::kCPU);
  load_state(stage.parameters(), initial_state(*network, 1));
  {
    const c10::NoGradGuard no_grad;
    // The other biases are high, so that no unit is silent by chance.
    const at::Tensor bias = stage.parameters().views()[1];
    bias.fill_(10);
    if (silenced > 0) bias.narrow(0, 0, silenced).fill_(-100);
  }
  DeadUnits dead(stage);
  EXPECT_EQ(dead.units(), activation == "relu" && freeze.empty() ? 4 : 0);
  const at::Tensor x = at::full({1, 3, 6, 6}, 0.3f), y = at::full({1, 3, 6, 6}, 0.7f);
  for (int i = 0; i < updates; ++i) {
    Activations kept = stage.forward({x}, y);
    stage.backward(kept, {}, {.first = stage.count_gradient()});
    stage.update(stage.advance(), 1.0);
    dead.look(stage.gradients());
  }
  return dead.dead();
}

TEST(DeadUnits, AreChannelsThatNothingPassesForLong) {
  constexpr int kEnough = DeadUnits::kEvery * DeadUnits::kLooks;
  EXPECT_EQ(dead_after(kEnough, 3, "relu"), 3);
  EXPECT_EQ(dead_after(kEnough, 0, "relu"), 0);
  EXPECT_EQ(dead_after(kEnough - 1, 3, "relu"), 0) << "silent for a while";
  EXPECT_EQ(dead_after(kEnough, 3, "leaky-relu"), 0);
  EXPECT_EQ(dead_after(kEnough, 3, "relu", {"0.bias"}), 0) << "frozen biases tell nothing";
}

}  // namespace
}  // namespace millrace::stages
