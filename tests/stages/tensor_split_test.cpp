// Modules that two ranks share compute the whole ones' results, except for the order of sums.
#include "stages/tensor_split.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "stages/stage.h"
#include "tests/stages/thread_reducer.h"

namespace millrace::stages {
namespace {

const ImageShape kShape{3, 6, 6};

std::shared_ptr<const Network> convolutions() {
  return build_network({.layers = 4, .features = 4, .kernel = 3}, kShape);
}

std::shared_ptr<const Network> classifier() {
  ModelSpec model;
  model.preset = "layers";
  model.layer = {{"conv", {{"out", 4}, {"kernel", 3}}},
                 {"relu"},
                 {"maxpool"},
                 {"flatten"},
                 {"linear", {{"out", 6}}},
                 {"relu"},
                 {"linear", {{"out", 2}}}};
  return build_network(model, kShape, Gives::vector);
}

struct Result {
  StateDict state;
  at::Tensor prediction, loss;
  std::vector<int> places;  ///< of sums
};

/// Some updates of the whole network by one stage.
Result learn(const std::shared_ptr<const Network>& network, const StateDict& weights) {
  Stage stage(network, {0, network->size(), true, true}, {.kind = "adam", .lr = 0.01}, at::kCPU);
  load_state(stage.parameters(), weights);
  const ImageShape& made = network->output();
  Result result;
  at::Tensor skipped = at::zeros({});
  for (int i = 0; i < 5; ++i) {
    const at::Tensor x = at::sin(at::arange(108, at::kFloat).view({1, 3, 6, 6}) + i);
    Activations kept = stage.forward({x}, at::full(made.sizes(), 0.3f));
    result.prediction = kept.outputs[0];
    result.loss = kept.loss;
    stage.backward(kept, {});
    stage.update({.count = 1}, at::ones({}, at::kDouble), skipped);
  }
  result.state = stage.checkpoint();
  return result;
}

void expect_close(StateDict got, StateDict expected) {
  std::ranges::sort(got, {}, &StateDict::value_type::first);
  std::ranges::sort(expected, {}, &StateDict::value_type::first);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].first, expected[i].first);
    EXPECT_TRUE(at::allclose(got[i].second, expected[i].second, 1e-4, 1e-6)) << got[i].first;
  }
}

void expect_same_learning(const std::shared_ptr<const Network>& network,
                          const std::vector<int>& places) {
  const StateDict weights = initial_state(*network, 1);
  const Result expected = learn(network, weights);
  const auto results =
      by_sharing_ranks(network, {}, weights,
                       [](const auto& part, const StateDict& mine, const ThreadReducer& reducer) {
                         Result result = learn(part, mine);
                         result.places = reducer.places;
                         return result;
                       });
  EXPECT_TRUE(at::equal(results[0].prediction, results[1].prediction));
  EXPECT_TRUE(at::allclose(results[0].loss, expected.loss, 1e-5));
  StateDict parts = results[0].state;
  parts.insert(parts.end(), results[1].state.begin(), results[1].state.end());
  expect_close(TensorSplit(network, {}, kWays).whole_of(parts), expected.state);
  // Sums of one sample: one per pair forward, and one backward except for the first of all modules.
  std::vector<int> all;
  for (int sample = 0; sample < 5; ++sample) all.insert(all.end(), places.begin(), places.end());
  for (const Result& result : results) EXPECT_EQ(result.places, all);
}

TEST(TensorSplit, ConvolutionsAndLinearLayersBehindAFlattenLearnTheSame) {
  expect_same_learning(convolutions(), {4, 12, 9});
  expect_same_learning(classifier(), {8});
}

TEST(TensorSplit, NoPairLiesAcrossACut) {
  using Numbers = std::vector<int>;
  for (const auto& [cut, pairs] : std::vector<std::pair<Numbers, Numbers>>{
           {{}, {0, 2, 4, 6}}, {{4}, {0, 2, 4, 6}}, {{2}, {2, 4}}, {{1, 3, 5}, {}}}) {
    Numbers all;
    const TensorSplit split(convolutions(), cut, kWays);
    for (const auto& pair : split.pairs()) all.insert(all.end(), {pair.first, pair.second});
    EXPECT_EQ(all, pairs);
  }
}

}  // namespace
}  // namespace millrace::stages
