// Step programs of modules that ranks share learn what eager steps do.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "tests/capture/program/operators.h"
#include "tests/stages/thread_reducer.h"

namespace millrace::program {
namespace {

using stages::kWays, stages::TensorSplit, stages::ThreadReducer;
const stages::ImageShape kPicture{3, 8, 6};
constexpr int kSamples = 6;

std::shared_ptr<const stages::Network> convolutions() {
  return stages::build_network({.layers = 4, .features = 20, .kernel = 3}, kPicture);
}
std::shared_ptr<const stages::Network> classifier() {
  return stages::build_network({.preset = "layers",
                                .layer = {{"conv", {{"out", 4}, {"kernel", 3}}},
                                          {"relu"},
                                          {"flatten"},
                                          {"linear", {{"out", 6}}},
                                          {"relu"},
                                          {"linear", {{"out", 2}}}}},
                               kPicture, stages::Gives::anything);
}

stages::Stage stage_of(const std::shared_ptr<const stages::Network>& network,
                       const stages::StateDict& weights, bool programs) {
  stages::Stage stage(network, {0, network->size(), true, true}, {.kind = "adam", .lr = 0.01},
                      at::kCPU, {.channels_last = programs});
  load_state(stage.parameters(), weights);
  return stage;
}

struct Learned {
  at::Tensor weights;
  std::set<std::string> left;  ///< to LibTorch's operators
};

/// Some updates, two samples each, by step programs of so many threads; 0: eagerly.
Learned learn(stages::Stage stage, int threads) {
  const at::Tensor wanted = at::full(stage.network().output().sizes(), 0.3f);
  kernels::Team team(std::max(threads, 1));
  Learner learner(std::move(stage), {.team = threads > 1 ? &team : nullptr}, threads == 0);
  for (int i = 0; i < kSamples; ++i) {
    learner.learn(at::sin(at::arange(144, at::kFloat).view({1, 3, 8, 6}) + i).abs(), wanted);
    if (i % 2 == 1) learner.update();
  }
  return {learner.weights(), left_to_libtorch(learner.operations())};
}

/// What each of the ranks that share `network` has learned.
std::vector<Learned> shared(const std::shared_ptr<const stages::Network>& network, int threads) {
  return stages::by_sharing_ranks(
      network, {}, initial_state(*network, 1),
      [&](const auto& part, const stages::StateDict& weights, ThreadReducer&) {
        return learn(stage_of(part, weights, threads > 0), threads);
      });
}

TEST(SharedModules, ProgramsLearnWhatEagerStepsDoWithTheSameBitsForAnyThreads) {
  for (const auto& network : {convolutions(), classifier()}) {
    const auto eager = shared(network, 0), programs = shared(network, 1), team = shared(network, 3);
    for (int rank = 0; rank < kWays; ++rank) {
      SCOPED_TRACE(std::to_string(network->size()) + " modules, rank " + std::to_string(rank));
      EXPECT_TRUE(at::allclose(programs[rank].weights, eager[rank].weights, 1e-3, 1e-5));
      EXPECT_TRUE(at::equal(team[rank].weights, programs[rank].weights));
    }
  }
  EXPECT_EQ(shared(convolutions(), 1)[0].left, std::set<std::string>());
}

/// An own type, as engine::RankLost is.
struct Lost : std::runtime_error {
  using std::runtime_error::runtime_error;
};
class LosingReducer final : public stages::Reducer {
 public:
  void add_up(std::span<float>, int) override { throw Lost("rank 1 is gone"); }
};

TEST(SharedModules, ARankThatIsLostEndsAReplayWithItsOwnWords) {
  const auto network = convolutions();
  const TensorSplit split(network, {}, kWays);
  for (const int threads : {1, 2}) {
    stages::Stage stage = stage_of(split.part(std::make_shared<LosingReducer>()),
                                   split.part_of(initial_state(*network, 1), 0), true);
    EXPECT_THROW(learn(std::move(stage), threads), Lost);
  }
}

}  // namespace
}  // namespace millrace::program
