// Each correction against numbers worked out by hand (in double, from the formula of its doc
// comment) on one weight, w = 1, with gradients 1, -0.5, 0.25, 0.5; and orthogonal gradients.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "stages/correction.h"
#include "stages/optimizer.h"

namespace millrace::stages {
namespace {

const std::vector<double> kGradients = {1, -0.5, 0.25, 0.5};

struct Trace {
  std::vector<double> weights, shifted;  ///< after each update; plus the next pass's shift
};

void correct(const Correction& c, at::Tensor& g, const at::Tensor& w) {
  const CorrectionKind& kind = correction_kind(c.numbers().rule);
  if (kind.correct) kind.correct(c.numbers(), c.memory(), g, w);
}
void updated(const Correction& c, const at::Tensor& before, const at::Tensor& after) {
  const CorrectionKind& kind = correction_kind(c.numbers().rule);
  if (kind.updated) kind.updated(c.numbers(), c.memory(), before, after);
}

/// `spoiled`: before each update a skipped one with a non-finite gradient.
Trace train(const CorrectionSpec& spec, const Delay& delay, OptimizerSpec optimizer,
            bool spoiled = false) {
  at::Tensor w = at::ones({1}), skipped = at::zeros({});
  if (spec.kind == "spike-compensation") optimizer.spike_delay = delay.updates;
  Optimizer rule(optimizer, w);
  const auto correction = make_correction(spec, delay, w, w.numel());
  Trace trace;
  for (std::size_t i = 0; i < kGradients.size(); ++i) {
    const at::Tensor rate =
        at::full({}, correction ? correction->rate(std::int64_t(i)) : 1.0, at::kDouble);
    const auto update = [&](double gradient) {
      at::Tensor g = at::full({1}, gradient);
      rule.update(w, w, g, 1, rate, skipped, {}, correction ? &*correction : nullptr);
    };
    if (spoiled) update(std::numeric_limits<double>::quiet_NaN());
    update(kGradients[i]);
    trace.weights.push_back(w.item<float>());
    at::Tensor shift = correction ? correction->backward_shift() : at::Tensor();
    if (!shift.defined() && correction) shift = correction->forward_shift();
    trace.shifted.push_back(trace.weights.back() + (shift.defined() ? shift.item<float>() : 0));
  }
  return trace;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-6) << "step " << i;
}

const OptimizerSpec kSgd{.lr = 0.1};

TEST(Correction, PipeMaresRateReachesTheFullOne) {
  expect_near(train({.kind = "pipemare", .anneal = 4}, {5, 5}, kSgd).weights,
              {0.98, 0.994953488, 0.983773148, 0.950336133});
}

TEST(Correction, DiscrepancyLooksBack) {
  const Trace trace = train({.kind = "discrepancy", .decay = 0.5}, {4, 4}, kSgd);
  expect_near(trace.weights, {0.9, 0.95, 0.925, 0.875});
  expect_near(trace.shifted, {0.963641434, 0.971695137, 0.959153721, 0.935540459});
}

TEST(Correction, WeightPredictionLooksAhead) {
  // SGD with momentum: w + 4 (w - w before).
  OptimizerSpec momentum = kSgd;
  momentum.momentum = 0.9;
  const Trace sgd = train({.kind = "weight-prediction"}, {4, 4}, momentum);
  expect_near(sgd.weights, {0.9, 0.86, 0.799, 0.6941});
  expect_near(sgd.shifted, {0.5, 0.7, 0.555, 0.2745});
  const OptimizerSpec adam{.kind = "adam", .lr = 0.01};
  const Trace xpipe = train({.kind = "weight-prediction"}, {4, 4}, adam);
  expect_near(xpipe.weights, {0.99, 0.98733663, 0.983932338, 0.979049945});
  expect_near(xpipe.shifted, {0.95, 0.976683148, 0.970315173, 0.959520373});
}

TEST(Correction, SpikeCompensation) {
  OptimizerSpec momentum = kSgd;
  momentum.momentum = 0.9;
  expect_near(train({.kind = "spike-compensation"}, {4, 4}, momentum).weights,
              {0.59049, 0.736196, 0.6101989, 0.36942401});
  momentum.momentum = 1;
  for (const double weight : train({.kind = "spike-compensation"}, {4, 4}, momentum).weights)
    EXPECT_TRUE(std::isfinite(weight));
}

TEST(Correction, DelayCompensation) {
  expect_near(train({.kind = "dc-asgd", .lambda = 2}, {2, 2}, kSgd).weights,
              {0.9, 0.970412398, 0.946920712, 0.888029291});
}

TEST(Correction, GapAware) {
  std::vector<double> w = {1, 1, 1}, want;  // two updates before the first, none
  double step = 0;
  for (std::size_t i = 0; i < kGradients.size(); ++i) {
    double g = kGradients[i];
    if (i > 0) g /= 1 + std::abs(w.back() - w[w.size() - 3]) / step;
    w.push_back(w.back() - 0.1 * g);
    const double moved = std::abs(w.back() - w[w.size() - 2]);
    step = i == 0 ? moved : 0.99 * step + 0.01 * moved;
    want.push_back(w.back());
  }
  expect_near(train({.kind = "gap-aware"}, {2, 2}, kSgd).weights, want);
  EXPECT_NEAR(want[1], 0.925, 1e-9) << "0.05 halved: the weight is as far off as a step is long";
}

TEST(Correction, GapAwareLeavesOutPadding) {
  const at::Tensor before = at::zeros({4}), after = at::tensor({1.f, 3.f, 0.f, 0.f});
  const auto correction = make_correction({.kind = "gap-aware"}, {2, 2}, before, 2);
  updated(*correction, before, after);
  EXPECT_EQ(correction->memory()[2].item<float>(), 2);
}

TEST(Correction, RemembersNothingOfAnUpdateThatIsNotMade) {
  for (const char* kind : {"discrepancy", "weight-prediction", "gap-aware", "dc-asgd"}) {
    const Trace plain = train({.kind = kind}, {2, 2}, kSgd);
    const Trace spoiled = train({.kind = kind}, {2, 2}, kSgd, true);
    EXPECT_EQ(plain.weights, spoiled.weights) << kind;
    EXPECT_EQ(plain.shifted, spoiled.shifted) << kind;
  }
}

TEST(Correction, StartsAgainAsIfNew) {
  for (const char* kind : {"discrepancy", "weight-prediction", "gap-aware", "dc-asgd"}) {
    at::Tensor w = at::full({1}, 3.0);
    auto used = make_correction({.kind = kind}, {2, 2}, w, w.numel());
    for (int i = 0; i < 4; ++i) {
      at::Tensor g = at::ones({1});
      correct(*used, g, w);
      const at::Tensor before = w.clone();
      updated(*used, before, w.add_(1));
    }
    used->restart(w);
    auto fresh = make_correction({.kind = kind}, {2, 2}, w, w.numel());
    for (auto* correction : {&used, &fresh}) updated(**correction, w, w + 0.5);
    at::Tensor a = at::full({1}, 0.3), b = a.clone();
    correct(*used, a, w + 0.7);
    correct(*fresh, b, w + 0.7);
    EXPECT_TRUE(at::equal(a, b)) << kind;
    if (used->backward_shift().defined()) {
      EXPECT_TRUE(at::equal(used->backward_shift(), fresh->backward_shift())) << kind;
    }
  }
}

TEST(Correction, FreshGradientsAndUnknownKinds) {
  const at::Tensor w = at::ones({1});
  for (const std::string& kind : correction_names())
    EXPECT_FALSE(make_correction({.kind = kind}, {}, w, w.numel())) << kind;
  EXPECT_THROW(make_correction({.kind = "inverse-ages"}, {}, w, w.numel()), std::invalid_argument);
}

/// What a gradient loses to the mean of those before it.
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
