// Options that do not fit together, and the end of a run.
#include "engine/trainer.h"

#include <gtest/gtest.h>

#include "tests/engine/sample_feed.h"

namespace millrace::engine {
namespace {

const stages::ImageShape kShape{3, 8, 8};

TrainerOptions options_of(int stages, std::vector<int> cut) {
  stages::ModelSpec model;
  model.layers = 3;
  model.features = 4;
  model.kernel = 3;
  TrainerOptions options;
  options.network = stages::build_network(model, kShape);
  options.sample = kShape;
  options.stages = stages;
  options.cut = std::move(cut);
  return options;
}

std::string complaint(TrainerOptions options) {
  try {
    Trainer trainer(std::move(options));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(Trainer, RefusesWhatDoesNotFit) {
  EXPECT_EQ(complaint(options_of(7, {})), "7 stages: the network has 6 modules, so 1 to 6");
  EXPECT_EQ(complaint(options_of(3, {2})), "1 places make 2 stages, pipeline.stages is 3");
  EXPECT_EQ(complaint(options_of(3, {3, 3})), "places must rise from 1 to 5");
  EXPECT_EQ(complaint(options_of(2, {6})), "places must rise from 1 to 5");
  EXPECT_EQ(complaint(options_of(2, {0})), "places must rise from 1 to 5");
}

TEST(Trainer, BalancesWhatIsNotCut) {
  for (int stages = 1; stages <= 6; ++stages) {
    Trainer trainer(options_of(stages, {}));
    EXPECT_EQ(int(trainer.cut().size()), stages - 1);
    SampleFeed feed(trainer, kShape, 20);
    EXPECT_EQ(trainer.run(feed, nullptr).trained, 20);
  }
}

TEST(Trainer, StateIsNamedAsTheUncutNetwork) {
  Trainer trainer(options_of(3, {1, 3}));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : trainer.state()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias", "4.weight",
                                             "4.bias"}));
}

TEST(Trainer, StopsAtItsLimit) {
  Trainer trainer(options_of(2, {2}));
  SampleFeed feed(trainer, kShape, 100);
  const Outcome outcome = trainer.run(feed, nullptr, {.limit = 30});
  EXPECT_EQ(outcome.admitted, 30);
  EXPECT_EQ(outcome.trained, 30);
}

/// A feed that fails in the middle.
class BrokenFeed final : public Feed {
 public:
  Status poll(std::chrono::microseconds patience) override { return Status::ready; }
  void take(int, SampleInfo&) override {
    if (++taken_ == 10) throw std::runtime_error("the camera caught fire");
  }

 private:
  int taken_ = 0;
};

TEST(Trainer, RethrowsTheFirstFailureAfterAllHaveStopped) {
  Trainer trainer(options_of(4, {1, 2, 3}));
  BrokenFeed feed;
  EXPECT_THROW(trainer.run(feed, nullptr), std::runtime_error);
}

TEST(Trainer, InverseAgeDividesTheRate) {
  TrainerOptions options = options_of(2, {2});
  options.correction.kind = "inverse-age";
  options.optimizer.lr = 0.3;
  TrainerOptions by_hand = options_of(2, {2});
  by_hand.optimizer.lr = 0.1;  // age 2 at stage 0
  Trainer corrected(options), slow(by_hand);
  SampleFeed a(corrected, kShape, 3), b(slow, kShape, 3);
  corrected.run(a, nullptr);
  slow.run(b, nullptr);
  // Three samples give stage 0 its first update; its gradient is made before the rates tell.
  EXPECT_FALSE(at::equal(corrected.state()[4].second, slow.state()[4].second));
}

}  // namespace
}  // namespace millrace::engine
