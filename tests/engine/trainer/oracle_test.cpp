// The pipelined run equals the schedule's single-threaded meaning, bit for bit.
#include "tests/engine/oracle.h"

#include <gtest/gtest.h>

#include <c10/core/GradMode.h>

#include <atomic>
#include <numeric>

#include <torch/csrc/autograd/autograd.h>

#include "tests/engine/trained.h"

namespace millrace::engine {
namespace {

/// Nine modules with two connections that skip some: a residual, and the sample itself.
std::shared_ptr<const stages::Network> skipping() {
  const stages::LayerSpec conv{"conv", {{"out", 8}, {"kernel", 3}}};
  stages::ModelSpec model{.preset = "layers"};
  model.layer = {conv,
                 {"relu"},
                 conv,
                 {"add", {{"from", 1}}},
                 {"relu"},
                 conv,
                 {"concat", {{"from", -1}}},
                 {"conv", {{"out", 3}, {"kernel", 3}}},
                 {"sigmoid"}};
  return stages::build_network(model, kShape);
}

Trained by_pipeline(const TrainerOptions& options, std::int64_t samples, bool disturbed,
                    std::int64_t train_every = 1) {
  const std::atomic<std::int64_t> every{train_every};
  PipelineOptions how{.train_every = &every};
  if (disturbed) how.before_action = random_sleeps().before_action;
  return by_pipeline(options, samples, {}, how);
}

class OracleTest : public testing::TestWithParam<ScheduleCase> {};

TEST_P(OracleTest, PipelinedRunEqualsOracleAfter200Samples) {
  TrainerOptions options = small(GetParam());
  const Trained expected = by_oracle(options, 200);
  for (const bool disturbed : {false, true}) {
    expect_equal(by_pipeline(options, 200, disturbed), expected);
  }
}

TEST_P(OracleTest, LearningFromEveryThirdEqualsOracle) {
  TrainerOptions options = small(GetParam());
  expect_equal(by_pipeline(options, 100, true, 3), by_oracle(options, 100, 3));
}

TEST_P(OracleTest, SamplesWithoutATargetArePredictedOnlyAsTheOracleDoes) {
  const TrainerOptions options = small(GetParam());
  SampleFeed feed(kShape, 100);
  feed.has_target = told_most;
  expect_equal_where_told(options, feed, 100, by_oracle(options, 100, 1, false, {}, told_most));
}

TEST_P(OracleTest, TargetsThatComeLateGiveTheSameWeightsAndLosses) {
  if (!GetParam().replicas.empty()) GTEST_SKIP() << "late targets are for stages without replicas";
  for (const bool guard : {false, true}) {
    TrainerOptions options = late(small(GetParam()));
    options.guard = guard;
    LateFeed feed;
    expect_equal_where_told(options, feed, kLateSamples,
                            by_oracle(options, kLateSamples, 1, false, late_sample, told_most));
  }
}

TEST(LocalLosses, LearningFromEveryThirdEqualsOracle) {
  // Each stage leaves out the samples themselves, not downstream's results for them.
  TrainerOptions options = small("partime", 4, {2, 4, 6});
  options.correction.kind = "local";
  expect_equal(by_pipeline(options, 100, true, 3), by_oracle(options, 100, 3));
}

TEST_P(OracleTest, SkipConnectionsOverCuts) {
  TrainerOptions options = small(GetParam());
  options.network = skipping();
  options.weights = stages::initial_state(*options.network, 7);
  expect_equal(by_pipeline(options, 60, true), by_oracle(options, 60));
}

/// Those that can be recorded, and more cuts, schedules and replicas.
std::vector<ScheduleCase> all_cases() {
  std::vector<ScheduleCase> all = recorded_cases();
  const std::vector<ScheduleCase> more = {{"partime", 2, {1}},
                                          {"partime", 2, {7}},
                                          {"partime", 3, {2, 5}},
                                          {"partime", 3, {3, 4}},
                                          {"partime", 4, {1, 2, 3}},
                                          {"pb", 1, {}},
                                          {"pb", 8, {1, 2, 3, 4, 5, 6, 7}},
                                          {"pipedream", 1, {}},
                                          {"2bw", 4, {2, 4, 6}},
                                          {"1f1b", 1, {}},
                                          {"interleaved", 2, {4}},
                                          {"interleaved", 8, {1, 2, 3, 4, 5, 6, 7}},
                                          {"sequential", 1, {}},
                                          {"sequential", 2, {4}},
                                          {"sequential", 4, {2, 4, 6}},
                                          {"zb-h1", 1, {}},
                                          {"zb-h1", 4, {2, 4, 6}},
                                          {"zb-h1", 4, {1, 2, 3}},
                                          {"pipedream", 2, {4}, {2, 1}},
                                          {"pipedream", 2, {4}, {1, 3}},
                                          {"pipedream", 3, {2, 5}, {2, 3, 2}},
                                          {"pipedream", 1, {}, {3}},
                                          {"gpipe", 3, {2, 5}, {}, true},
                                          {"1f1b", 4, {2, 4, 6}, {}, true},
                                          {"zb-h1", 4, {2, 4, 6}, {}, true},
                                          {"pipedream", 4, {2, 4, 6}, {}, true},
                                          {"2bw", 4, {2, 4, 6}, {}, true},
                                          {"partime", 2, {4}, {}, false, true},
                                          {"partime", 8, {1, 2, 3, 4, 5, 6, 7}, {}, false, true},
                                          {"pb", 4, {1, 2, 3}, {}, false, true}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

INSTANTIATE_TEST_SUITE_P(StagesAndCuts, OracleTest, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return name_of(info.param); });

/// (layers-1) x {conv, relu}, conv, sigmoid and SGD, written with LibTorch alone.
Trained by_plain_loop(const TrainerOptions& options, std::int64_t samples,
                      std::int64_t train_every) {
  std::vector<at::Tensor> p;
  for (const auto& [name, tensor] : options.weights)
    p.push_back(tensor.clone().set_requires_grad(true));
  Trained result;
  for (std::int64_t n = 0; n < samples; ++n) {
    const auto [input, target] = sample_at(n, kShape);
    at::Tensor y = input;
    for (std::size_t i = 0; i < p.size(); i += 2) {
      y = at::conv2d(y, p[i], p[i + 1], 1, 1);
      y = i + 2 < p.size() ? at::relu(y) : at::sigmoid(y);
    }
    const at::Tensor loss = at::mse_loss(y, target);
    if (n % train_every == 0) {
      const auto gradients = torch::autograd::grad({loss}, p);
      const c10::NoGradGuard no_grad;
      for (std::size_t i = 0; i < p.size(); ++i) p[i].add_(gradients[i], -options.optimizer.lr);
    }
    result.losses.push_back(loss.item<float>());
  }
  for (std::size_t i = 0; i < p.size(); ++i)
    result.weights.emplace_back(options.weights[i].first, p[i]);
  return result;
}

TEST(PlainLoop, LearningFromEveryThirdIsAPlainLoopOverThose) {
  // The samples left out leave no trace but their predictions.
  for (const std::string schedule : {"sequential", "partime", "pb", "pipedream"}) {
    const TrainerOptions options = small(schedule, 1, {});
    expect_equal(by_pipeline(options, 100, false, 3), by_plain_loop(options, 100, 3));
  }
  expect_equal_bits(by_pipeline(small("sequential", 3, {2, 5}), 50, true, 3).weights,
                    by_plain_loop(small("sequential", 1, {}), 50, 3).weights);
}

TEST(Corrections, RunAsTheOracleSays) {
  for (const std::string& kind : stages::correction_names()) {
    for (const std::string schedule : {"partime", "pb"}) {
      TrainerOptions options = small(schedule, 4, {2, 4, 6});
      options.correction.kind = kind;
      options.optimizer.momentum = 0.5;
      options.optimizer.lr = 0.05;
      SCOPED_TRACE(kind);
      const Trained got = by_pipeline(options, 60, true);
      expect_equal(got, by_oracle(options, 60));
      if (kind == "none") continue;
      options.correction.kind = "none";
      EXPECT_NE(by_oracle(options, 60).losses, got.losses) << kind << " with " << schedule;
    }
  }
}

TEST(OrthogonalGradients, RunAsTheOracleSays) {
  for (const ScheduleCase& of :
       {ScheduleCase{"sequential", 3, {2, 5}}, ScheduleCase{"partime", 4, {2, 4, 6}},
        ScheduleCase{"pb", 2, {4}}, ScheduleCase{"pipedream", 2, {4}, {2, 1}},
        ScheduleCase{"2bw", 3, {2, 5}}, ScheduleCase{"zb-h1", 2, {4}}}) {
    for (const char* kind : {"none", "local", "deep-supervision"}) {
      if (kind != std::string("none") && of.schedule != "partime") continue;
      SCOPED_TRACE(name_of(of) + kind);
      TrainerOptions options = small(of);
      options.correction.kind = kind;
      options.optimizer.orthogonal = 0.9;
      const Trained got = by_pipeline(options, 60, true);
      expect_equal(got, by_oracle(options, 60));
      options.optimizer.orthogonal = 0;
      EXPECT_NE(by_oracle(options, 60).losses, got.losses);
    }
  }
}

/// A broken camera: inputs that give no finite loss.
bool spoiled(std::int64_t frame) {
  return frame >= 450 && frame < 455;
}

/// A minibatch's alarm may come with any of its samples, of which the last is only to be discarded;
/// one replica's alarm is every replica's.
TEST(Guard, TurnsARunBackThatDivergesAsTheOracleSays) {
  for (const ScheduleCase& of :
       {ScheduleCase{"partime", 4, {2, 4, 6}}, ScheduleCase{"pb", 4, {2, 4, 6}},
        ScheduleCase{"2bw", 4, {2, 4, 6}}, ScheduleCase{"gpipe", 4, {2, 4, 6}},
        ScheduleCase{"interleaved", 4, {2, 4, 6}},
        ScheduleCase{"pipedream", 4, {2, 4, 6}, {2, 3, 1, 2}}}) {
    SCOPED_TRACE(name_of(of));
    TrainerOptions options = small(of);
    options.optimizer = {.kind = "adam", .lr = 1e-3};
    options.guard = true;
    PastRun run(options, 900, spoiled);
    Trainer& trainer = run.trainer;
    EXPECT_GE(trainer.guard().roll_backs(), 1);
    EXPECT_LT(run.log.losses.back(), run.log.losses.front());
    const Reading reading = trainer.monitor().read();
    for (int stage = 0; stage < 4; ++stage)
      EXPECT_GT(reading.skipped[stage], 0) << "stage " << stage;

    LossGuard guard(2 * trainer.schedule().slots());
    const auto sample = [](std::int64_t n) { return spoiled_at(n, kShape, spoiled(n)); };
    const auto [expected, losses] = by_oracle(options, 900, 1, false, sample, {}, &guard);
    EXPECT_EQ(guard.roll_backs(), trainer.guard().roll_backs());
    for (std::size_t n = 0; n < losses.size(); ++n) {
      if (!std::isfinite(losses[n])) continue;
      EXPECT_EQ(losses[n], run.log.losses[n]) << n;
    }
    for (const auto& [entry, tensor] : expected)
      EXPECT_TRUE(at::isfinite(tensor).all().item<bool>()) << entry;
    expect_equal_bits(trainer.state(), expected);
  }
}

TEST(Guard, TurnsARunBackThatEndsWhileItDiverges) {
  TrainerOptions options = small("partime", 2, {4});
  options.optimizer = {.kind = "adam", .lr = 1000};
  options.guard = true;
  PastRun run(options, 9);  // too few for a verdict on the way
  LossGuard guard(2 * run.trainer.schedule().slots());
  expect_equal(run.trained(), by_oracle(options, 9, 1, false, {}, {}, &guard));
  expect_equal_bits(run.trainer.state(), options.weights);
  EXPECT_EQ(run.trainer.guard().roll_backs(), 1);
  EXPECT_EQ(guard.roll_backs(), 1);
}

/// A rate far too high, for a while or from the start: the weights survive, the rate recovers, and
/// no loss of diverged weights becomes the reference.
TEST(Guard, SurvivesARateThatIsFarTooHigh) {
  for (const double times : {50.0, 1e6}) {
    TrainerOptions options = small("partime", 2, {4});
    options.optimizer = {.kind = "adam", .lr = 1e-3};
    options.guard = true;
    Trainer trainer(options);
    std::atomic<double> rate{1};
    struct Hand final : Observer {
      void predicted(Sample& sample, float loss) override {
        losses.push_back(loss);
        *rate = sample.info.index >= 600 && sample.info.index < 700 ? times : 1;
      }
      std::atomic<double>* rate;
      double times;
      std::vector<float> losses;
    } hand;
    hand.rate = &rate;
    hand.times = times;
    SampleFeed feed(kShape, 1500);
    trainer.run(feed, &hand, {.rate = &rate});
    const auto mean = [&](std::size_t from) {
      return std::accumulate(hand.losses.begin() + std::ptrdiff_t(from),
                             hand.losses.begin() + std::ptrdiff_t(from + 100), 0.0);
    };
    EXPECT_LT(mean(1400), 1.5 * mean(500)) << times;
    EXPECT_GE(trainer.guard().roll_backs(), times > 1000 ? 1 : 0);
    EXPECT_DOUBLE_EQ(trainer.now().rate.backed_off, 1) << "it has recovered";
  }
  TrainerOptions options = small("partime", 2, {4});
  options.optimizer = {.kind = "adam", .lr = 1000};
  options.guard = true;
  PastRun run(options, 400);
  EXPECT_GE(run.trainer.guard().roll_backs(), 1);
  EXPECT_LT(run.trainer.now().rate.lr, 100);
}

}  // namespace
}  // namespace millrace::engine
