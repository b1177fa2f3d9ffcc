// Each rule on numbers small enough to be worked out by hand.
#include "stages/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace millrace::stages {
namespace {

/// The weight 1 after steps with the given gradients.
double after(const OptimizerSpec& spec, std::initializer_list<float> gradients) {
  at::Tensor weights = at::ones({1});
  Optimizer optimizer(spec, weights);
  for (const float g : gradients) {
    at::Tensor gradient = at::full({1}, g);
    optimizer.step(weights, gradient);
  }
  return weights.item<float>();
}

TEST(Sgd, SubtractsTheRateTimesTheGradient) {
  EXPECT_FLOAT_EQ(after({.lr = 0.1}, {2.0f}), 0.8);
}

TEST(Sgd, MomentumStartsWithTheFirstGradient) {
  // m1 = 2; w = 1 - .1*2 = .8; m2 = .5*2 + 4 = 5; w = .8 - .5 = .3
  EXPECT_FLOAT_EQ(after({.lr = 0.1, .momentum = 0.5}, {2.0f, 4.0f}), 0.3);
}

TEST(Sgd, WeightDecayIsPartOfTheGradient) {
  EXPECT_FLOAT_EQ(after({.lr = 0.1, .weight_decay = 0.5}, {2.0f}), 1 - 0.1 * 2.5);
}

TEST(RmsProp, DividesByTheRootOfTheMeanSquare) {
  // v = .01*4 = .04; w = 1 - .1 * 2 / .2
  EXPECT_NEAR(after({.kind = "rmsprop", .lr = 0.1}, {2.0f}), 0.0, 1e-6);
}

TEST(Adam, FirstStepIsTheRate) {
  EXPECT_NEAR(after({.kind = "adam", .lr = 0.1}, {3.0f}), 0.9, 1e-6);
}

TEST(Adam, SecondStepCorrectsItsBias) {
  const double m = (0.9 * 0.1 * 3 + 0.1 * 1) / (1 - 0.81),
               v = (0.999 * 0.001 * 9 + 0.001 * 1) / (1 - 0.999 * 0.999);
  EXPECT_NEAR(after({.kind = "adam", .lr = 0.1}, {3.0f, 1.0f}), 0.9 - 0.1 * m / std::sqrt(v), 1e-6);
}

TEST(AdamW, DecaysTheWeightItself) {
  EXPECT_NEAR(after({.kind = "adamw", .lr = 0.1, .weight_decay = 0.5}, {3.0f}), 0.95 - 0.1, 1e-6);
}

TEST(Optimizer, AnUnknownKindIsAnErrorAndNotAnotherRule) {
  for (const std::string& name : optimizer_names())
    EXPECT_NO_THROW(Optimizer({.kind = name}, at::zeros({1})));
  EXPECT_THROW(Optimizer({.kind = "lion"}, at::zeros({1})), std::invalid_argument);
}

}  // namespace
}  // namespace millrace::stages
