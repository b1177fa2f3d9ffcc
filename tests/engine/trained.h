// A small pipeline that tests train, and the oracle's result for it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>

#include "capture/program/stage_programs.h"
#include "tests/engine/oracle.h"
#include "tests/engine/sample_feed.h"
#include "tests/repetitions.h"

namespace millrace::engine {

const stages::ImageShape kShape{3, 12, 16};

/// From kShape to kShape, with more weights than pixels in between.
const stages::ModelSpec kLargeWeights{.preset = "layers",
                                      .layer = {{"maxpool", {{"kernel", 4}}},
                                                {"conv", {{"out", 100}, {"kernel", 3}}},
                                                {"relu"},
                                                {"conv", {{"out", 96}, {"kernel", 3}}},
                                                {"relu"},
                                                {"conv", {{"out", 100}, {"kernel", 3}}},
                                                {"upsample", {{"factor", 4}}},
                                                {"conv", {{"out", 3}, {"kernel", 3}}}}};

/// Eight modules on samples of kShape, with weights.
inline TrainerOptions small(const std::string& schedule, int stages, std::vector<int> cut) {
  TrainerOptions options;
  options.network = stages::build_network({.layers = 4, .features = 8, .kernel = 3}, kShape);
  options.sample = kShape;
  options.schedule = schedule;
  options.stages = stages;
  options.cut = std::move(cut);
  options.optimizer.lr = 0.5;
  options.capture = Capture::eager;  // see by_oracle()
  options.weights = stages::initial_state(*options.network, 7);
  return options;
}

/// Parameters of small().
struct ScheduleCase {
  std::string schedule;
  int stages;
  std::vector<int> cut;
  std::vector<int> replicas = {};
  bool recompute = false;
  bool deep_supervision = false;
};

inline TrainerOptions small(const ScheduleCase& of) {
  TrainerOptions options = small(of.schedule, of.stages, of.cut);
  options.replicas = of.replicas;
  options.recompute = of.recompute;
  if (of.deep_supervision) options.correction.kind = "deep-supervision";
  return options;
}

/// A test's name: letters, digits and '_'.
inline std::string name_of(const ScheduleCase& of) {
  std::string name = of.schedule + "_" + std::to_string(of.stages) + "_stages";
  const auto list = [&](const char* what, const std::vector<int>& numbers) {
    if (!numbers.empty()) name += what;
    for (const int number : numbers) name += "_" + std::to_string(number);
  };
  list("_cut", of.cut);
  list("_replicas", of.replicas);
  if (of.recompute) name += "_recompute";
  if (of.deep_supervision) name += "_deep_supervision";
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// Schedules to test roll-backs on, which takes hundreds of samples on the host device: all in a
/// long run, else `one`.
inline std::vector<std::string> guarded_schedules(const char* one) {
  if (is_long()) return {"partime", "pipedream", "2bw", "gpipe"};
  return {one};
}

/// Every schedule that can be recorded.
inline std::vector<ScheduleCase> recorded_cases() {
  return {{"partime", 1, {}},
          {"partime", 2, {4}},
          {"partime", 4, {2, 4, 6}},
          {"partime", 8, {1, 2, 3, 4, 5, 6, 7}},
          {"partime", 4, {2, 4, 6}, {}, false, true},
          {"pb", 2, {4}, {}, false, true},
          {"pb", 2, {4}},
          {"pb", 4, {1, 2, 3}},
          {"pipedream", 2, {4}},
          {"pipedream", 4, {2, 4, 6}},
          {"2bw", 1, {}},
          {"2bw", 3, {2, 5}},
          {"gpipe", 1, {}},
          {"gpipe", 3, {2, 5}},
          {"gpipe", 2, {4}, {}, true},
          {"1f1b", 4, {2, 4, 6}},
          {"interleaved", 4, {2, 4, 6}},
          {"zb-h1", 2, {4}},
          {"sequential", 3, {2, 5}}};
}

struct Trained {
  stages::StateDict weights;
  std::vector<float> losses;
};

/// A trainer after that many samples. `spoiled`: see SampleFeed.
struct PastRun {
  explicit PastRun(const TrainerOptions& options, std::int64_t samples,
                   const std::function<bool(std::int64_t)>& spoiled = {}, PipelineOptions how = {})
      : trainer(options) {
    SampleFeed feed(options.sample, samples);
    feed.spoiled = spoiled;
    outcome = trainer.run(feed, &log, how);
  }
  Trained trained() const { return {trainer.state(), log.losses}; }

  Trainer trainer;
  LossLog log;
  Outcome outcome;
};

inline Trained by_pipeline(const TrainerOptions& options, std::int64_t samples,
                           const std::function<bool(std::int64_t)>& spoiled = {},
                           PipelineOptions how = {}) {
  PastRun run(options, samples, spoiled, std::move(how));
  EXPECT_EQ(run.trainer.now().recording.on, options.capture != Capture::eager)
      << run.trainer.now().recording.error;
  EXPECT_EQ(run.outcome.admitted, samples);
  EXPECT_EQ(run.outcome.trained + run.outcome.predicted_only + run.outcome.rejected, samples);
  EXPECT_EQ(run.trainer.monitor().trained(), run.outcome.trained);
  return run.trained();
}

/// `sample` with tensors on the devices of the first and the last stage.
inline SampleFunction brought_to(const std::vector<stages::Stage>& stages, SampleFunction sample) {
  const c10::Device first = stages.front().parameters().flat().device(),
                    last = stages.back().parameters().flat().device();
  return [=, sample = std::move(sample)](std::int64_t n) {
    const auto [input, target] = sample(n);
    return std::pair(input.to(first), target.to(last));
  };
}

/// On a core. `train_every`: of the smallest groups that whole updates cover. `as_recorded`: by
/// step programs, on the stages' devices. `sample` empty: sample_at(). `guard`, `guard_lag`: see
/// run_oracle().
inline Trained by_oracle(TrainerOptions options, std::int64_t samples, std::int64_t train_every = 1,
                         bool as_recorded = false, SampleFunction sample = {},
                         const LearnFunction& told = {}, LossGuard* guard = nullptr,
                         std::int64_t guard_lag = 0) {
  if (!sample) sample = [&](std::int64_t n) { return sample_at(n, options.sample); };
  if (!as_recorded) options.devices.clear(), options.capture = Capture::eager;
  const Schedule schedule = schedule_of(options);
  std::vector<stages::Stage> stages = tied_stages(options, schedule);
  Trained result;
  const SampleFunction brought = brought_to(stages, sample);
  const auto learns = [&](std::int64_t n) {
    return n / schedule.samples_a_choice() % train_every == 0 && (!told || told(n));
  };
  program::Arena arena(stages.front().parameters().flat().device());
  const CallFunction as_program = [&](stages::Stage& stage, const std::function<void()>& body) {
    program::record_call(stage, body, arena, {.numerics = options.numerics})->run();
  };
  result.losses = run_oracle(schedule, stages, brought, samples, learns, guard, guard_lag,
                             as_recorded ? as_program : CallFunction());
  const auto state = [&](int stage, int replica) {
    return stages[std::size_t(schedule.replica_id(stage, replica))].parameters().state();
  };
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const stages::StateDict first = state(stage, 0);
    for (int replica = 1; replica < schedule.replicas_of(stage); ++replica)
      expect_equal_bits(state(stage, replica), first);
    result.weights.insert(result.weights.end(), first.begin(), first.end());
  }
  return result;
}

inline void expect_equal(const Trained& got, const Trained& expected) {
  expect_equal_bits(got.weights, expected.weights);
  EXPECT_EQ(got.losses, expected.losses);
}

// ---- Samples of which some have no target.

/// Whether sample n has a target.
inline bool told_most(std::int64_t n) {
  return n % 11 != 5;
}

/// Trains on a feed of so many samples, of which told_most() have a target; the losses of the
/// others don't matter.
inline void expect_equal_where_told(const TrainerOptions& options, Feed& feed, std::int64_t samples,
                                    const Trained& expected) {
  Trainer trainer(options);
  LossLog log;
  const Outcome outcome = trainer.run(feed, &log);
  EXPECT_EQ(outcome.without_target, (samples + 5) / 11);
  EXPECT_EQ(outcome.fresh() + outcome.rejected, samples);
  expect_equal_bits(trainer.state(), expected.weights);
  ASSERT_EQ(log.losses.size(), expected.losses.size());
  for (std::size_t n = 0; n < log.losses.size(); ++n) {
    if (told_most(std::int64_t(n))) {
      EXPECT_EQ(log.losses[n], expected.losses[n]) << "sample " << n;
    } else {
      EXPECT_TRUE(std::isnan(log.losses[n])) << "sample " << n;
    }
  }
}

/// Sample n with a target that is not its input.
inline std::pair<at::Tensor, at::Tensor> late_sample(std::int64_t n) {
  return {sample_at(n, kShape).first, sample_at(5000 + n, kShape).first};
}

/// `options` with late targets.
inline TrainerOptions late(TrainerOptions options) {
  options.target_is_input = false;
  options.late_targets = true;
  return options;
}

constexpr std::int64_t kLateSamples = 44;

/// kLateSamples of late_sample(), whose targets arrive only when two later samples were taken.
class LateFeed final : public Feed {
 public:
  Status poll(std::chrono::microseconds) override {
    return next_ < kLateSamples ? Status::ready : Status::end;
  }
  void take(Sample& sample) override {
    const std::int64_t n = next_.load();
    write(late_sample(n).first, sample.input());
    sample.info = {.frame = n, .captured = Clock::now()};
    next_ = n + 1;
  }
  /// Every third call delivers targets that a stream would have brought by then, whether or not a
  /// stage can take them.
  Status target(Sample& sample, std::chrono::microseconds) override {
    const std::int64_t n = sample.info.frame;
    if (++looks_ % 3 > 0 && next_ < std::min(kLateSamples, n + 3)) return Status::wait;
    if (!told_most(n)) return Status::end;
    write(late_sample(n).second, sample.target());
    return Status::ready;
  }

 private:
  static void write(const at::Tensor& from, std::span<float> to) {
    std::copy_n(from.const_data_ptr<float>(), to.size(), to.begin());
  }

  std::atomic<std::int64_t> next_{0}, looks_{0};
};

}  // namespace millrace::engine
