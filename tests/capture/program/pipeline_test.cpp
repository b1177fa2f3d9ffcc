// A pipeline of step programs equals the schedule's single-threaded meaning, computed by the same
// programs, bit for bit.
#include <gtest/gtest.h>

#include "capture/program/program_stage.h"
#include "engine/pipeline/pinning.h"
#include "tests/engine/late_feed.h"
#include "tests/engine/trained.h"
#include "tests/stages/thread_reducer.h"

namespace millrace::engine {
namespace {

TrainerOptions by_programs(const std::string& schedule, int stages, std::vector<int> cut) {
  TrainerOptions options = small(schedule, stages, std::move(cut));
  options.optimizer.lr = 0.1;
  options.capture = Capture::graph;
  return options;
}

std::pair<at::Tensor, at::Tensor> smooth(std::int64_t n) {
  return sample_at(n, kShape);
}

Trained by_oracle_of_programs(const TrainerOptions& options, std::int64_t samples,
                              const SampleFunction& sample = smooth,
                              const LearnFunction& learns = {}) {
  const Schedule schedule = schedule_of(options);
  std::vector<program::ProgramStage> stages =
      program_stages(build_stages(options, schedule), schedule, options.numerics);
  Trained result;
  result.losses = run_oracle(schedule, stages, sample, samples, learns);
  for (const program::ProgramStage& stage : stages) {
    const stages::StateDict state = stage.stage().parameters().state();
    result.weights.insert(result.weights.end(), state.begin(), state.end());
  }
  return result;
}

void expect_equals_the_oracle(const TrainerOptions& options, std::int64_t samples) {
  expect_equal(by_pipeline(options, samples), by_oracle_of_programs(options, samples));
}

struct Case {
  std::string schedule;
  int stages;
  std::vector<int> cut;
  bool recompute = false;
};

class ProgramPipeline : public testing::TestWithParam<Case> {
 protected:
  static TrainerOptions options() {
    TrainerOptions options = by_programs(GetParam().schedule, GetParam().stages, GetParam().cut);
    options.recompute = GetParam().recompute;
    return options;
  }
};

TEST_P(ProgramPipeline, EqualsTheOracleAfter100Samples) {
  expect_equals_the_oracle(options(), 100);
}

TEST_P(ProgramPipeline, ThreadsThatShareAStagesWorkLeaveTheOraclesBits) {
  if (usable_cores() < 2) GTEST_SKIP() << "a stage's threads want cores of their own";
  TrainerOptions shared = options();
  for (int stage = 0; stage < shared.stages; ++stage) shared.threads.push_back(2 - stage % 2);
  expect_equals_the_oracle(shared, 40);
}

TEST_P(ProgramPipeline, TargetsThatComeLateGiveTheSameWeightsAndLosses) {
  const TrainerOptions told = late(options());
  expect_equal_with_late_targets(told, by_oracle_of_programs(told, 100, late_sample, told_most));
}

TEST_P(ProgramPipeline, StaysCloseToEager) {
  TrainerOptions eager = options();
  eager.capture = Capture::eager;
  const Trained got = by_pipeline(options(), 40), expected = by_pipeline(eager, 40);
  for (std::size_t i = 0; i < got.losses.size(); ++i)
    EXPECT_NEAR(got.losses[i], expected.losses[i], 1e-5f);
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, ProgramPipeline,
    testing::Values(Case{"partime", 1, {}}, Case{"partime", 2, {4}}, Case{"partime", 4, {2, 4, 6}},
                    Case{"partime", 8, {1, 2, 3, 4, 5, 6, 7}}, Case{"pb", 2, {4}},
                    Case{"pb", 4, {1, 2, 3}}, Case{"pipedream", 2, {4}},
                    Case{"pipedream", 4, {2, 4, 6}}, Case{"2bw", 1, {}}, Case{"2bw", 3, {2, 5}},
                    Case{"gpipe", 1, {}}, Case{"gpipe", 3, {2, 5}}, Case{"gpipe", 2, {4}, true},
                    Case{"1f1b", 4, {2, 4, 6}}, Case{"interleaved", 4, {2, 4, 6}},
                    Case{"zb-h1", 2, {4}}, Case{"sequential", 3, {2, 5}}),
    [](const auto& info) {
      std::string name = info.param.schedule + "_" + std::to_string(info.param.stages) +
                         (info.param.recompute ? "_recompute" : "");
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST(ProgramPipeline, ProductsOfBfloat16EqualTheOracle) {
  if (!kernels::has_bf16()) GTEST_SKIP() << "this core has no tiles of bfloat16 (AMX)";
  for (const std::string schedule : {"partime", "1f1b"}) {
    SCOPED_TRACE(schedule);
    TrainerOptions options = by_programs(schedule, 2, {4});
    options.network = stages::build_network({.layers = 4, .features = 16, .kernel = 3}, kShape);
    options.weights = stages::initial_state(*options.network, 7);
    if (usable_cores() > 1) options.threads = {2, 1};
    const Trained of_floats = by_oracle_of_programs(options, 60);
    options.numerics.precision = kernels::Precision::kBf16;
    expect_equals_the_oracle(options, 60);
    const Trained of_bf16 = by_oracle_of_programs(options, 60);
    EXPECT_NE(of_floats.losses, of_bf16.losses);
    EXPECT_NEAR(of_floats.losses.back(), of_bf16.losses.back(), 1e-2 * of_floats.losses.back());
  }
}

/// What two ranks that share each module, threads here, make of their parts.
template <class Learn>
std::vector<Trained> by_sharing_ranks(const TrainerOptions& whole, const Learn& learn) {
  return stages::by_sharing_ranks(
      whole.network, whole.cut, whole.weights,
      [&](const auto& network, const stages::StateDict& weights, stages::ThreadReducer&) {
        TrainerOptions mine = whole;
        mine.network = network;
        mine.weights = weights;
        return learn(mine);
      });
}

TEST(ProgramPipeline, RanksThatShareModulesEqualTheOracle) {
  for (const auto& [schedule, cut] : std::vector<std::pair<std::string, std::vector<int>>>{
           {"partime", {4}}, {"pb", {4}}, {"2bw", {}}, {"gpipe", {4}}, {"zb-h1", {4}}}) {
    for (const bool recompute : {false, true}) {
      if (recompute && schedule != "gpipe") continue;
      SCOPED_TRACE(schedule + (recompute ? ", recomputed" : ""));
      TrainerOptions options = by_programs(schedule, int(cut.size()) + 1, cut);
      options.recompute = recompute;
      const auto got = by_sharing_ranks(
          options, [](const TrainerOptions& mine) { return by_pipeline(mine, 24); });
      const auto expected = by_sharing_ranks(
          options, [](const TrainerOptions& mine) { return by_oracle_of_programs(mine, 24); });
      for (std::size_t rank = 0; rank < got.size(); ++rank) {
        expect_equal(got[rank], expected[rank]);
        EXPECT_EQ(got[rank].losses, got[0].losses);
      }
      for (std::size_t i = 0; i < got[0].weights.size(); ++i) {
        const auto& [name, whole] = got[0].weights[i];  // of what each has all of
        if (name == "2.bias" || name == "6.bias") {
          EXPECT_TRUE(at::equal(whole, got[1].weights[i].second)) << name;
        }
      }
    }
  }
}

TEST(ProgramPipeline, EveryOptimizerWithEveryCorrection) {
  for (const std::string& optimizer : stages::optimizer_names()) {
    for (const std::string& kind : stages::correction_names()) {
      TrainerOptions options = by_programs("partime", 3, {2, 5});
      options.optimizer = {.kind = optimizer, .lr = 0.01, .weight_decay = 0.01};
      if (optimizer == "sgd" || optimizer == "rmsprop") options.optimizer.momentum = 0.9;
      if (kind == "spike-compensation" && optimizer != "sgd") continue;
      options.correction.kind = kind;
      SCOPED_TRACE(optimizer + ", " + kind);
      expect_equals_the_oracle(options, 60);
    }
  }
}

/// Few pixels meet many weights, whose gradients an update makes itself where one follows at once
/// and its correction lets it.
TEST(ProgramPipeline, LargeWeightsEqualTheOracle) {
  for (const ScheduleCase& of : std::vector<ScheduleCase>{{"partime", 2, {3}},
                                                          {"sequential", 1, {}},
                                                          {"pb", 2, {4}},
                                                          {"pipedream", 2, {3}},
                                                          {"2bw", 2, {4}},
                                                          {"gpipe", 2, {3}},
                                                          {"zb-h1", 2, {3}}}) {
    for (const char* correction : {"none", "discrepancy", "gap-aware", "dc-asgd"}) {
      for (const int threads : {1, 2}) {
        if (threads > usable_cores()) continue;
        const bool stashes = of.schedule == "pipedream" || of.schedule == "2bw";
        if (stashes && correction == std::string("discrepancy")) continue;
        SCOPED_TRACE(of.schedule + ", " + correction + ", " + std::to_string(threads));
        TrainerOptions options = by_programs(of.schedule, of.stages, of.cut);
        options.network = stages::build_network(kLargeWeights, kShape);
        options.weights = stages::initial_state(*options.network, 7);
        options.optimizer = {.kind = "adam", .lr = 1e-3, .weight_decay = 0.01};
        options.correction.kind = correction;
        if (threads > 1) options.threads = std::vector<int>(std::size_t(of.stages), threads);
        expect_equals_the_oracle(options, 20);
      }
    }
  }
}

/// The weights of old that these look at come round in another beat than slots and versions.
TEST(ProgramPipeline, CorrectionsBesideStashedWeights) {
  for (const char* kind : {"gap-aware", "dc-asgd"}) {
    TrainerOptions options = by_programs("pipedream", 3, {2, 5});
    options.correction.kind = kind;
    SCOPED_TRACE(kind);
    expect_equals_the_oracle(options, 60);
  }
}

/// The loss guard rolls back at the sample that the oracle rolls back at.
TEST(ProgramPipeline, TurnsBackWhereTheOracleDoes) {
  TrainerOptions options = by_programs("partime", 3, {2, 5});
  options.optimizer = {.kind = "adam", .lr = 1e-3};
  options.guard = true;
  Trainer trainer(options);
  SampleFeed feed(kShape, 400);
  feed.spoiled = [](std::int64_t n) { return n >= 250 && n < 255; };
  trainer.run(feed, nullptr);
  EXPECT_GE(trainer.guard().roll_backs(), 1);
  const Schedule schedule = schedule_of(options);
  std::vector<program::ProgramStage> stages =
      program_stages(build_stages(options, schedule), schedule);
  LossGuard guard(2 * for_recording(schedule).slots());
  const SampleFunction sample = [&](std::int64_t n) {
    return spoiled_at(n, kShape, feed.spoiled(n));
  };
  run_oracle(schedule, stages, sample, 400, {}, &guard, 0);
  stages::StateDict expected;
  for (const program::ProgramStage& stage : stages) {
    for (const auto& entry : stage.stage().parameters().state()) expected.push_back(entry);
  }
  expect_equal_bits(trainer.state(), expected);
}

TEST(ProgramPipeline, RefusesReplicas) {
  TrainerOptions options = by_programs("pipedream", 2, {4});
  options.replicas = {2, 1};
  EXPECT_THROW(Trainer{options}, std::invalid_argument);
}

}  // namespace
}  // namespace millrace::engine
