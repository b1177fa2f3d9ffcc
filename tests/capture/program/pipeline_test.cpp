// What of a pipeline of step programs is theirs alone. That it equals the schedule's
// single-threaded meaning in every schedule: tests/engine/trainer/recorded_test.cpp; that programs
// stay close to eager steps: program_test.cpp.
#include <gtest/gtest.h>

#include "engine/pipeline/pinning.h"
#include "tests/engine/trained.h"
#include "tests/stages/thread_reducer.h"

namespace millrace::engine {
namespace {

TrainerOptions by_programs(const ScheduleCase& of) {
  TrainerOptions options = small(of);
  options.optimizer.lr = 0.1;
  options.capture = Capture::graph;
  return options;
}

Trained by_oracle_of_programs(const TrainerOptions& options, std::int64_t samples) {
  return by_oracle(options, samples, 1, /*as_recorded=*/true);
}

class ProgramPipeline : public testing::TestWithParam<ScheduleCase> {};

TEST_P(ProgramPipeline, ThreadsThatShareAStagesWorkLeaveTheOraclesBits) {
  if (usable_cores() < 2) GTEST_SKIP() << "a stage's threads want cores of their own";
  TrainerOptions shared = by_programs(GetParam());
  for (int stage = 0; stage < shared.stages; ++stage) shared.threads.push_back(2 - stage % 2);
  expect_equal(by_pipeline(shared, 40), by_oracle_of_programs(shared, 40));
}

INSTANTIATE_TEST_SUITE_P(Schedules, ProgramPipeline, testing::ValuesIn(recorded_cases()),
                         [](const auto& info) { return name_of(info.param); });

/// Few pixels meet many weights, whose gradients an update makes itself where one follows at once
/// and its correction lets it.
TEST(ProgramPipeline, LargeWeightsEqualTheOracle) {
  const ScheduleCase cases[] = {{"partime", 2, {3}},   {"sequential", 1, {}}, {"pb", 2, {4}},
                                {"pipedream", 2, {3}}, {"2bw", 2, {4}},       {"gpipe", 2, {3}},
                                {"zb-h1", 2, {3}}};
  for (const ScheduleCase& of : cases) {
    for (const std::string correction : {"none", "discrepancy", "gap-aware", "dc-asgd"}) {
      const bool stashes = of.schedule == "pipedream" || of.schedule == "2bw";
      if (stashes && correction == "discrepancy") continue;
      for (const int threads : {1, 2}) {
        if (threads > usable_cores()) continue;
        SCOPED_TRACE(name_of(of) + ", " + correction + ", " + std::to_string(threads));
        TrainerOptions options = by_programs(of);
        options.network = stages::build_network(kLargeWeights, kShape);
        options.weights = stages::initial_state(*options.network, 7);
        options.optimizer = {.kind = "adam", .lr = 1e-3, .weight_decay = 0.01};
        options.correction.kind = correction;
        options.threads.assign(threads > 1 ? std::size_t(of.stages) : 0, threads);
        expect_equal(by_pipeline(options, 20), by_oracle_of_programs(options, 20));
      }
    }
  }
}

TEST(ProgramPipeline, ProductsOfBfloat16EqualTheOracle) {
  if (!kernels::has_bf16()) GTEST_SKIP() << "this core has no tiles of bfloat16 (AMX)";
  for (const std::string schedule : {"partime", "1f1b"}) {
    SCOPED_TRACE(schedule);
    TrainerOptions options = by_programs({schedule, 2, {4}});
    options.network = stages::build_network({.layers = 4, .features = 16, .kernel = 3}, kShape);
    options.weights = stages::initial_state(*options.network, 7);
    if (usable_cores() > 1) options.threads = {2, 1};
    const Trained of_floats = by_oracle_of_programs(options, 60);
    options.numerics.precision = kernels::Precision::kBf16;
    const Trained of_bf16 = by_oracle_of_programs(options, 60);
    expect_equal(by_pipeline(options, 60), of_bf16);
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
  const ScheduleCase cases[] = {
      {"partime", 2, {4}},         {"pb", 2, {4}},   {"2bw", 1, {}}, {"gpipe", 2, {4}},
      {"gpipe", 2, {4}, {}, true}, {"zb-h1", 2, {4}}};
  for (const ScheduleCase& of : cases) {
    SCOPED_TRACE(name_of(of));
    const TrainerOptions options = by_programs(of);
    const auto got =
        by_sharing_ranks(options, [](const TrainerOptions& mine) { return by_pipeline(mine, 24); });
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

}  // namespace
}  // namespace millrace::engine
