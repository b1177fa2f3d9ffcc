// A pipeline of recorded steps equals the schedule's single-threaded meaning, bit for bit, on a
// device that defers work and runs it in any order that events allow.
#include <gtest/gtest.h>

#include <atomic>

#include "tests/engine/trained.h"

namespace millrace::engine {
namespace {

#ifdef MILLRACE_ON_CUDA  // tests/host_device
constexpr bool kOnCuda = true;
#else
constexpr bool kOnCuda = false;
#endif

/// With all stages recorded: on the first GPU or, on cores, by step programs.
TrainerOptions recorded(TrainerOptions options) {
  options.capture = Capture::graph;
  if (kOnCuda) options.devices.assign(std::size_t(options.stages), {.cuda = true, .index = 0});
  return options;
}

/// Few samples, but full pipelines: the host device takes its time.
void expect_equals_the_oracle(const TrainerOptions& options) {
  const int samples = std::max(12, 3 * options.stages);
  const TrainerOptions how = recorded(options);
  expect_equal(by_pipeline(how, samples), by_oracle(how, samples, 1, /*as_recorded=*/true));
}

class RecordedTest : public testing::TestWithParam<ScheduleCase> {};

TEST_P(RecordedTest, EqualsTheOracle) {
  expect_equals_the_oracle(small(GetParam()));
}

TEST_P(RecordedTest, TargetsThatComeLateGiveTheSameWeightsAndLosses) {
  const TrainerOptions how = recorded(late(small(GetParam())));
  LateFeed feed;
  expect_equal_where_told(how, feed, kLateSamples,
                          by_oracle(how, kLateSamples, 1, true, late_sample, told_most));
}

/// With deep supervision, updates from the head's gradient alone, downstream's alone, or both.
TEST(Recorded, LearningFromEveryThirdEqualsTheOracle) {
  const std::atomic<std::int64_t> third{3};
  for (const ScheduleCase& of : {ScheduleCase{"partime", 4, {2, 4, 6}, {}, false, true},
                                 ScheduleCase{"pb", 2, {4}, {}, false, true}}) {
    SCOPED_TRACE(name_of(of));
    TrainerOptions how = recorded(small(of));
    how.optimizer = {.kind = "adam", .lr = 0.01};
    expect_equal(by_pipeline(how, 24, {}, {.train_every = &third}),
                 by_oracle(how, 24, 3, /*as_recorded=*/true));
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, RecordedTest, testing::ValuesIn(recorded_cases()),
                         [](const auto& info) { return name_of(info.param); });

/// In a network of changes the sample crosses every cut, from which the first stage recomputes.
TEST(Recorded, ANetworkOfChangesEqualsTheOracle) {
  for (const char* kind : {"none", "local", "deep-supervision"}) {
    for (const char* schedule : {"partime", "pb"}) {
      if (kind == std::string("local") && schedule == std::string("pb")) continue;
      TrainerOptions options = small(schedule, 4, {2, 4, 6});
      options.network = stages::build_network({.layers = 4, .features = 8, .kernel = 3}, kShape,
                                              stages::Gives::picture, {.change = true});
      options.weights = stages::initial_state(*options.network, 7);
      for (auto& [name, weight] : options.weights) weight.add_(0.01);  // the last are zeros
      options.correction.kind = kind;
      SCOPED_TRACE(schedule + std::string(" ") + kind);
      expect_equals_the_oracle(options);
    }
  }
}

TEST(Recorded, EveryOptimizer) {
  for (const std::string& kind : stages::optimizer_names()) {
    TrainerOptions options = small("partime", 2, {4});
    options.optimizer = {.kind = kind, .lr = 0.01, .weight_decay = 0.01};
    if (kind == "sgd" || kind == "rmsprop") options.optimizer.momentum = 0.9;
    if (kind != "adamw") options.optimizer.orthogonal = 0.9;
    SCOPED_TRACE(kind);
    expect_equals_the_oracle(options);
  }
}

TEST(Recorded, EveryCorrection) {
  for (const std::string& kind : stages::correction_names()) {
    TrainerOptions options = small("partime", 3, {2, 5});
    options.optimizer = {.kind = "adam", .lr = 0.01};
    if (kind == "spike-compensation")
      options.optimizer = {.kind = "sgd", .lr = 0.05, .momentum = 0.9};
    options.correction.kind = kind;
    SCOPED_TRACE(kind);
    expect_equals_the_oracle(options);
  }
}

/// The rings of old weights recur with another period than slots and versions.
TEST(Recorded, CorrectionsBesideStashedWeights) {
  for (const char* kind : {"gap-aware", "dc-asgd"}) {
    TrainerOptions options = small("pipedream", 3, {2, 5});
    options.correction.kind = kind;
    SCOPED_TRACE(kind);
    expect_equals_the_oracle(options);
  }
}

TEST(Recorded, AnUpdateThatIsNotFiniteChangesNothing) {
  TrainerOptions options = small("partime", 2, {4});
  options.optimizer = {.kind = "adam", .lr = 0.01};
  PastRun run(recorded(options), 40, [](std::int64_t n) { return n % 10 == 9; });
  for (const auto& [name, value] : run.trainer.state())
    EXPECT_TRUE(at::isfinite(value).all().item<bool>()) << name;
  const Reading reading = run.trainer.monitor().read();
  EXPECT_EQ(reading.skipped[1], 4);
  EXPECT_EQ(reading.updates[1], 36);
}

/// If the guard's verdict is known only when the work is over, it acts as many samples later as
/// there are slots, in every run.
TEST(Recorded, TurnsBackAtTheSameSampleInEveryRun) {
  for (const std::string& name : guarded_schedules("partime")) {
    SCOPED_TRACE(name);
    TrainerOptions options = small(name, 3, {2, 5});
    options.optimizer = {.kind = "adam", .lr = 1e-3};
    options.guard = true;
    const auto spoiled = [](std::int64_t n) { return n >= 130 && n < 135; };
    const auto sample = [&](std::int64_t n) { return spoiled_at(n, kShape, spoiled(n)); };
    const TrainerOptions how = recorded(options);
    PastRun run(how, 220, spoiled);
    Trainer& trainer = run.trainer;
    EXPECT_GE(trainer.guard().roll_backs(), 1);

    const std::int64_t slots = trainer.schedule().slots();
    LossGuard guard(2 * slots);
    const Trained expected = by_oracle(how, 220, 1, true, sample, {}, &guard, kOnCuda ? slots : 0);
    expect_equal_bits(trainer.state(), expected.weights);
    EXPECT_EQ(guard.roll_backs(), trainer.guard().roll_backs());
  }
}

/// Whatever was launched before a stage's state is asked for is in it, and nothing else.
TEST(Recorded, ACheckpointOnTheWayIsTheWeightsOfItsSample) {
  const TrainerOptions options = recorded(small("partime", 1, {}));
  Trainer trainer(options);
  SampleFeed feed(kShape, 60);
  stages::StateDict seen;
  PipelineOptions how;
  how.after_sample = [&](int stage, std::int64_t sample) {
    if (sample == 30) seen = trainer.checkpoint(stage);
  };
  trainer.run(feed, nullptr, how);
  expect_equal_bits(seen, by_oracle(options, 31, 1, true).weights);
}

TEST(Recorded, RefusesReplicas) {
  TrainerOptions options = recorded(small("pipedream", 2, {4}));
  options.replicas = {2, 1};
  if (!options.devices.empty()) options.devices.push_back(options.devices.back());
  EXPECT_THROW(Trainer{options}, std::invalid_argument);
  options.capture = Capture::automatic;
  EXPECT_FALSE(Trainer(options).now().recording.on);
}

}  // namespace
}  // namespace millrace::engine
