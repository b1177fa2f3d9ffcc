// Trainers as the ranks of one run: weights and losses are the oracle's, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "tests/engine/trained_by_ranks.h"

namespace millrace::engine {
namespace {

class RanksTest : public testing::TestWithParam<ScheduleCase> {};

TEST_P(RanksTest, EqualTheOracle) {
  const TrainerOptions options = small(GetParam());
  const Trained expected = by_oracle(options, 40);
  const int workers = int(schedule_of(options).workers.size());
  for (const int count : {2, 4}) {
    if (count > workers) continue;
    SCOPED_TRACE(std::to_string(count) + " ranks");
    expect_equal(by_ranks(options, 40, count), expected);
  }
}

TEST_P(RanksTest, EqualOneProcessInStepPrograms) {
  TrainerOptions options = small(GetParam());
  options.capture = Capture::graph;
  expect_equal(by_ranks(options, 40, 2), by_pipeline(options, 40));  // whole minibatches
}

INSTANTIATE_TEST_SUITE_P(Schedules, RanksTest,
                         testing::ValuesIn(std::vector<ScheduleCase>{
                             {"partime", 2, {4}},
                             {"partime", 4, {2, 4, 6}},
                             {"pb", 4, {1, 2, 3}},
                             {"pipedream", 4, {2, 4, 6}},
                             {"2bw", 4, {2, 4, 6}},
                             {"gpipe", 4, {2, 4, 6}},
                             {"1f1b", 4, {2, 4, 6}},
                             {"interleaved", 4, {2, 4, 6}},
                             {"interleaved", 8, {1, 2, 3, 4, 5, 6, 7}},
                             {"sequential", 4, {2, 4, 6}},
                             {"zb-h1", 4, {2, 4, 6}},
                             {"1f1b", 4, {2, 4, 6}, {}, true}}),
                         [](const auto& info) { return name_of(info.param); });

TEST(Ranks, EqualTheOracleWithReplicasOnSeveralRanks) {
  struct Case {
    std::vector<int> cut, replicas, ranks;
  };
  for (const Case& one : {Case{{4}, {2, 2}, {0, 1, 2, 3}}, Case{{4}, {2, 2}, {0, 1, 0, 1}},
                          Case{{4}, {3, 1}, {0, 1, 1, 0}}, Case{{4}, {1, 3}, {0, 0, 1, 2}},
                          Case{{}, {3}, {0, 1, 1}}, Case{{2, 5}, {1, 3, 2}, {0, 1, 0, 1, 0, 1}}}) {
    TrainerOptions options = small("pipedream", int(one.replicas.size()), one.cut);
    options.replicas = one.replicas;
    options.rank_of_worker = one.ranks;
    options.optimizer = {.kind = "adam", .lr = 1e-3, .orthogonal = 0.9};
    const int count = *std::max_element(one.ranks.begin(), one.ranks.end()) + 1;
    for (const bool reconstructs : {true, false}) {
      options.target_is_input = reconstructs;
      SCOPED_TRACE(testing::PrintToString(one.ranks) + (reconstructs ? " one buffer" : ""));
      expect_equal(by_ranks(options, 60, count), by_oracle(options, 60));
    }
  }
}

TEST(Ranks, TurnBackTogetherWithReplicasOnSeveralRanks) {
  TrainerOptions options = small("pipedream", 3, {2, 5});
  options.replicas = {2, 1, 3};
  options.optimizer = {.kind = "adam", .lr = 1e-3};
  options.guard = true;
  const auto spoiled = [](std::int64_t n) { return n == 30 || (n >= 250 && n < 255); };
  PastRun alone(options, 360, spoiled);
  EXPECT_GE(alone.trainer.guard().roll_backs(), 1);
  options.rank_of_worker = {0, 1, 0, 0, 1, 2};
  const Trained got = by_ranks(options, 360, 3, spoiled);
  const auto [weights, losses] = alone.trained();
  expect_equal_bits(got.weights, weights);
  ASSERT_EQ(got.losses.size(), losses.size());
  for (std::size_t n = 0; n < got.losses.size(); ++n)
    EXPECT_TRUE(got.losses[n] == losses[n] || (got.losses[n] != got.losses[n] && spoiled(n)));
}

TEST(Ranks, TurnBackTogetherAtTheEndOfARunThatDiverges) {
  TrainerOptions options = small("partime", 2, {4});
  options.optimizer = {.kind = "adam", .lr = 1000};
  options.guard = true;
  on_ranks(options, 2, [&](int rank, Trainer& trainer) {
    SampleFeed feed(kShape, rank == 0 ? 9 : 0);
    trainer.run(feed, nullptr, {});
    EXPECT_EQ(trainer.guard().roll_backs(), 1) << "rank " << rank;
    if (rank == 0) expect_equal_bits(trainer.state(), options.weights);
  });
}

TEST(Ranks, EqualTheOracleWithCorrectionsGuardAndAdam) {
  const std::atomic<std::int64_t> third{3};
  for (const std::string kind : {"local", "deep-supervision", "inverse-age"}) {
    TrainerOptions options = small("partime", 4, {2, 4, 6});
    options.correction.kind = kind;
    options.optimizer = {.kind = "adam", .lr = 1e-3};
    options.guard = true;
    SCOPED_TRACE(kind);
    expect_equal(by_ranks(options, 60, 2), by_oracle(options, 60));
    expect_equal(by_ranks(options, 60, 2, {}, {.train_every = &third}), by_oracle(options, 60, 3));
  }
}

TEST(Ranks, GoOnAtAnotherCutWithTheWeightsAndOptimizerStateOfAll) {
  TrainerOptions options = small("partime", 3, {2, 5});
  options.optimizer = {.kind = "adam", .lr = 1e-3};
  Trainer alone(options);
  SampleFeed feed(kShape, 30), more(kShape, 60, 30);
  alone.run(feed, nullptr, {});
  alone.recut({3, 6});
  alone.run(more, nullptr, {});

  stages::StateDict got;
  on_ranks(options, 3, [&](int rank, Trainer& trainer) {
    SampleFeed first(kShape, 30), second(kShape, 60, 30);
    trainer.run(first, nullptr, {});
    if (rank == 0) {
      trainer.recut({3, 6});
    } else {
      EXPECT_TRUE(trainer.follow());
    }
    trainer.run(second, nullptr, {});
    if (rank == 0) got = trainer.checkpoint();
  });
  expect_equal_bits(got, alone.checkpoint());
}

}  // namespace
}  // namespace millrace::engine
