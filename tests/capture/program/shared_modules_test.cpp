// Step programs of modules that ranks share: the same sums as eager steps, at the same places, and
// nothing asked of other ranks but when they run.
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

struct Net {
  std::string name;
  std::shared_ptr<const stages::Network> network;
};

std::shared_ptr<const stages::Network> layers(std::vector<stages::LayerSpec> list) {
  stages::ModelSpec model;
  model.preset = "layers";
  model.layer = std::move(list);
  return build_network(model, kPicture, stages::Gives::anything);
}

std::vector<Net> nets() {
  return {
      {"convolutions", stages::build_network({.layers = 4, .features = 20, .kernel = 3}, kPicture)},
      {"classifier", layers({{"conv", {{"out", 4}, {"kernel", 3}}},
                             {"relu"},
                             {"flatten"},
                             {"linear", {{"out", 6}}},
                             {"relu"},
                             {"linear", {{"out", 2}}}})}};
}

at::Tensor sample(int i) {
  return at::sin(at::arange(144, at::kFloat).view({1, 3, 8, 6}) + i).abs();
}
at::Tensor target(const stages::Network& network) {
  const stages::ImageShape& made = network.output();
  return at::full(made.sizes(), 0.3f);
}

stages::Stage stage_of(const std::shared_ptr<const stages::Network>& network,
                       const stages::StateDict& weights, bool programs) {
  stages::Stage stage(network, {0, network->size(), true, true}, {.kind = "adam", .lr = 0.01},
                      at::kCPU, {.channels_last = programs});
  load_state(stage.parameters(), weights);
  return stage;
}

struct Result {
  stages::StateDict state;
  std::vector<float> losses;
  std::vector<int> places;  ///< of sums
  std::vector<capture::OperationInfo> operations;
};

/// Some updates, two samples each, by step programs of so many threads; 0: eagerly.
Result learn(stages::Stage stage, int threads) {
  const at::Tensor wanted = target(stage.network());
  Result result;
  kernels::Team team(std::max(threads, 1));
  Learner learner(std::move(stage), {.team = threads > 1 ? &team : nullptr}, threads == 0);
  for (int i = 0; i < kSamples; ++i) {
    result.losses.push_back(learner.learn(sample(i), wanted));
    if (i % 2 == 1) learner.update();
  }
  result.state = learner.stage.checkpoint();
  result.operations = learner.operations();
  return result;
}

/// What each of the ranks that share `network` has learned.
std::vector<Result> shared(const std::shared_ptr<const stages::Network>& network, int threads) {
  return stages::by_sharing_ranks(
      network, {}, initial_state(*network, 1),
      [&](const auto& part, const stages::StateDict& weights, ThreadReducer& reducer) {
        Result result = learn(stage_of(part, weights, threads > 0), threads);
        result.places = reducer.places;
        return result;
      });
}

void expect_close(const stages::StateDict& got, const stages::StateDict& expected,
                  double relative = 0, double absolute = 0) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].first, expected[i].first);
    EXPECT_TRUE(at::allclose(got[i].second, expected[i].second, relative, absolute))
        << got[i].first;
  }
}

TEST(SharedModules, ProgramsLearnWhatEagerStepsDoByTheSameSums) {
  for (const Net& net : nets()) {
    SCOPED_TRACE(net.name);
    const auto eager = shared(net.network, 0), programs = shared(net.network, 1);
    for (int rank = 0; rank < kWays; ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      expect_close(programs[rank].state, eager[rank].state, 1e-3, 1e-5);
      EXPECT_EQ(programs[rank].places, eager[rank].places) << "recording asks no other rank";
      EXPECT_EQ(programs[rank].losses, programs[0].losses);
      for (int i = 0; i < kSamples; ++i)
        EXPECT_NEAR(programs[rank].losses[i], eager[rank].losses[i], 1e-5);
    }
  }
}

TEST(SharedModules, ConvolutionsLeaveNothingToLibTorchAndARanksThreadsTheSameBits) {
  const auto network = nets()[0].network;
  const auto programs = shared(network, 1), team = shared(network, 3);
  int copies = 0;
  for (const capture::OperationInfo& operation : programs[0].operations) {
    EXPECT_NE(operation.kernel, capture::kLibTorch) << operation.name;
    copies += operation.name.starts_with("copy of");
  }
  EXPECT_EQ(copies, 2) << "the layouts of sample and target alone";
  for (int rank = 0; rank < kWays; ++rank) expect_close(team[rank].state, programs[rank].state);
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
  const auto network = nets()[0].network;
  const TensorSplit split(network, {}, kWays);
  for (const int threads : {1, 2}) {
    stages::Stage stage = stage_of(split.part(std::make_shared<LosingReducer>()),
                                   split.part_of(initial_state(*network, 1), 0), true);
    EXPECT_THROW(learn(std::move(stage), threads), Lost);
  }
}

}  // namespace
}  // namespace millrace::program
