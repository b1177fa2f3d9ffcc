// The pipeline on steps that compute nothing: order, hand-off, ends. Run by ThreadSanitizer.
#include "engine/pipeline/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>

#include "engine/schedule/registry.h"
#include "tests/engine/fake_pipeline.h"

namespace millrace::engine {
namespace {

FakePipeline pipeline_of(const std::string& name, int stages, std::int64_t samples) {
  return FakePipeline(make_schedule(name, {.stages = stages}), samples);
}

/// Every `step`-th number from `first` on, less than `end`.
std::vector<std::int64_t> every(std::int64_t step, std::int64_t first, std::int64_t end) {
  std::vector<std::int64_t> numbers;
  for (; first < end; first += step) numbers.push_back(first);
  return numbers;
}

/// Samples admitted, trained on, only predicted, rejected.
using Numbers = std::array<std::int64_t, 4>;
Numbers numbers_of(const Outcome& of) {
  return {of.admitted, of.trained, of.predicted_only, of.rejected};
}

TEST(Pipeline, AnEmptyStreamEndsAtOnce) {
  for (const int stages : {1, 3}) {
    FakePipeline rig = pipeline_of("partime", stages, 0);
    EXPECT_EQ(numbers_of(rig.run()), Numbers{});
  }
}

TEST(Pipeline, AFailingWorkerStopsItsNeighbours) {
  FakePipeline rig = pipeline_of("partime", 3, 1000);
  PipelineOptions options;
  options.before_action = [](int worker, const Action& action) {
    if (worker == 2 && action.sample == 20) throw std::runtime_error("stage 2 failed");
  };
  EXPECT_THROW(rig.run(options), std::runtime_error);
}

TEST(Pipeline, ASlowStageHasNoMoreThanTheSlotsBeforeIt) {
  // Trained frames are then no older than the queue's and these, at any speed.
  for (const std::string name : {"partime", "pb", "pipedream", "sequential"}) {
    for (const int stages : {2, 3, 5}) {
      FakePipeline rig = pipeline_of(name, stages, 100);
      std::int64_t most = 0;
      PipelineOptions options;
      options.before_action = [&](int worker, const Action& action) {
        if (worker != stages - 1 || action.op != Op::forward) return;
        std::this_thread::sleep_for(std::chrono::microseconds(500));
        most = std::max(most, rig.monitor.totals().frames + 1 - action.sample);
      };
      rig.run(std::move(options));
      EXPECT_LE(most, rig.schedule.slots()) << name;
    }
  }
}

TEST(TrainEvery, ALeftOutSampleCostsAForwardAndNoMoreInEveryStage) {
  const std::atomic<std::int64_t> third{3};
  for (const std::string name : {"partime", "pb", "pipedream", "sequential"}) {
    for (const int stages : {1, 2, 3, 5}) {
      FakePipeline rig = pipeline_of(name, stages, 300);
      EXPECT_EQ(numbers_of(rig.run(random_sleeps(&third))), (Numbers{300, 100, 200, 0}));
      EXPECT_EQ(rig.monitor.tally().counts().trained, 100);
      EXPECT_EQ(rig.monitor.tally().counts().predicted_only, 200);
      for (int i = 0; i < stages; ++i) {
        // partime's gradients meet the current sample, 2d later; every third sample is trained on.
        const std::int64_t late = name == "partime" ? 2 * (stages - 1 - i) : 0;
        const FakeStep& step = *rig.steps[i];
        EXPECT_EQ(step.samples('F'), every(1, 0, 300));
        EXPECT_EQ(step.samples('B'), every(3, late, 300)) << name << " stage " << i;
        EXPECT_EQ(step.count_of('U'), step.count_of('B'));
        EXPECT_EQ(step.count_of('U') + step.count_of('S'), 300 - late);
        EXPECT_EQ(step.count_of('D') + step.count_of('B'), 300);
        EXPECT_EQ(rig.monitor.read().updates[i], step.count_of('U'));
        EXPECT_EQ(rig.monitor.read().skipped[i], 0) << "it was not left out for cause";
      }
    }
  }
}

TEST(TrainEvery, AStageWithItsOwnLossUpdatesForEitherOfItsSamples) {
  const std::atomic<std::int64_t> third{3};
  for (const std::string name : {"partime", "pb"}) {
    FakePipeline rig(make_schedule(name, {.stages = 3, .deep_supervision = true}), 300);
    EXPECT_EQ(numbers_of(rig.run(random_sleeps(&third))), (Numbers{300, 100, 200, 0}));
    for (int i = 0; i < 3; ++i) {
      const std::int64_t late = 2 * (2 - i);
      std::int64_t updates = 0;
      for (std::int64_t n = late; n < 300 + late; ++n)
        updates += (n - late) % 3 == 0 || (late > 0 && n < 300 && n % 3 == 0);
      const FakeStep& step = *rig.steps[i];
      EXPECT_EQ(step.samples('L'), i < 2 ? every(3, (late + 2) / 3 * 3, 300) : every(1, 0, 0));
      EXPECT_EQ(step.samples('R'), i < 2 ? every(3, 0, 300) : every(1, 0, 0));
      EXPECT_EQ(step.samples('B'), every(3, 0, 300));
      EXPECT_EQ(step.count_of('U'), updates) << name << " stage " << i;
      EXPECT_EQ(step.count_of('U') + step.count_of('S'), 300);
      EXPECT_EQ(rig.monitor.read().updates[i], updates);
      EXPECT_EQ(rig.monitor.read().skipped[i], 0);
      EXPECT_EQ(rig.monitor.read().gradient_age_spread[i], std::pair(late, late));
    }
  }
}

/// Shows its prediction long before its launch is over.
class SlowToEnd final : public EmptyStep, public Observer {
 public:
  bool defers() const override { return true; }
  void forward(int, std::int64_t) override { ++called_; }
  std::int64_t launch() override { return launched_ = called_; }
  bool shown(int) const override { return true; }
  /// True once its prediction has been reported, or after so many calls that it clearly never will
  /// be.
  bool over(std::int64_t launch) override {
    gave_up = gave_up || (predicted_ < launch && ++looks_ > 10'000);
    return gave_up || predicted_ >= launch;
  }
  void predicted(Sample&, float) override { ++predicted_; }
  bool gave_up = false;

 private:
  std::int64_t called_ = 0, launched_ = 0, predicted_ = 0, looks_ = 0;
};

TEST(Deferring, APredictionIsToldBeforeItsLaunchIsOver) {
  const Schedule schedule = make_schedule("partime", {.stages = 1});
  Monitor monitor(schedule.replica_counts(), 0.0);
  CountedFeed feed(20);
  SlowToEnd step;
  run_pipeline({.schedule = schedule, .steps = {&step}, .monitor = monitor}, feed, &step);
  EXPECT_FALSE(step.gave_up);
}

/// Gives a target only once the sample's prediction was shown.
class ShownFirst final : public CountedFeed, public Observer {
 public:
  using CountedFeed::CountedFeed;
  Status target(Sample& sample, std::chrono::microseconds patience) override {
    if (sample.info.frame % 7 == 3) return Status::end;
    if (sample.info.frame < shown_.load()) return Status::ready;
    std::this_thread::sleep_for(patience);
    return Status::wait;
  }
  void shown(Sample& sample) override { EXPECT_EQ(sample.info.frame, shown_++); }
  void predicted(Sample& sample, float) override {
    EXPECT_EQ(sample.info.frame, told++);
    EXPECT_EQ(sample.info.has_target, sample.info.frame % 7 != 3);
  }
  std::int64_t told = 0;

 private:
  std::atomic<std::int64_t> shown_{0};
};

TEST(LateTargets, APredictionIsShownBeforeItsTargetComes) {
  for (const std::string name : {"partime", "pb", "pipedream", "1f1b", "zb-h1", "sequential"}) {
    for (const int stages : {1, 3}) {
      FakePipeline rig = pipeline_of(name, stages, 0);
      ShownFirst feed(60);
      rig.late_targets = true;
      const Outcome outcome = rig.run(random_sleeps(), feed, &feed);
      EXPECT_EQ(feed.told, 60) << name;
      EXPECT_EQ(outcome.fresh(), 60) << name;
      EXPECT_EQ(outcome.without_target, 9) << name;
    }
  }
}

/// Gives samples without a target, too.
class SomeTold final : public CountedFeed {
 public:
  using CountedFeed::CountedFeed;

 private:
  void fill(std::int64_t n, Sample& sample) override { sample.info.has_target = n % 7 != 3; }
};

TEST(Minibatches, AMissingTargetRejectsItsMinibatchWhichIsNoneOfTheLimit) {
  const auto run = [](const std::string& name, bool late, std::int64_t samples,
                      std::int64_t limit) {
    FakePipeline rig = pipeline_of(name, 4, 0);
    ShownFirst shown_first(samples);
    SomeTold some_told(samples);
    rig.late_targets = late;
    return late ? rig.run({.limit = limit}, shown_first, &shown_first)
                : rig.run({.limit = limit}, some_told, nullptr);
  };
  for (const std::string name : {"gpipe", "1f1b", "zb-h1", "2bw", "interleaved"}) {
    for (const bool late : {false, true}) {
      if (late && (name == "2bw" || name == "interleaved")) continue;
      const Outcome limited = run(name, late, 1000, 12);  // without a target: 3, 10, 17
      EXPECT_EQ(numbers_of(limited), (Numbers{24, 12, 0, 0})) << name << late;
      EXPECT_EQ(limited.without_target, 3) << name << late;
      EXPECT_EQ(limited.incomplete, 9) << name << late;
      const Outcome ended = run(name, late, 11, 0);  // without a target: 3, and 10 at the end
      EXPECT_EQ(numbers_of(ended), (Numbers{11, 4, 0, 2})) << name << late;
      EXPECT_EQ(ended.without_target, 2) << name << late;
      EXPECT_EQ(ended.incomplete, 3) << name << late;
    }
  }
}

/// Runs all its calls at the launch, in no time.
class DoneWhenLaunched final : public EmptyStep {
 public:
  bool defers() const override { return true; }
  std::int64_t launch() override { return ++launched_; }
  bool over(std::int64_t launch) override { return launch <= launched_; }

 private:
  std::int64_t launched_ = 0;
};

TEST(LateTargets, APredictionIsLaunchedBeforeItsTargetComes) {
  const Schedule schedule = make_schedule("partime", {.stages = 1});
  Monitor monitor(schedule.replica_counts(), 0.0);
  ShownFirst feed(20);
  DoneWhenLaunched step;
  run_pipeline({.schedule = schedule, .steps = {&step}, .monitor = monitor, .late_targets = true},
               feed, &feed);
  EXPECT_EQ(feed.told, 20);
}

TEST(TrainEvery, LeavesRecomputingOut) {
  const std::atomic<std::int64_t> fourth{4};
  FakePipeline rig(make_schedule("pipedream", {.stages = 2, .recompute = true}), 40);
  rig.run({.train_every = &fourth});
  for (const auto& step : rig.steps) EXPECT_EQ(step->samples('R'), every(4, 0, 40));
}

TEST(Pipeline, WhichSamplesArePredictedDoesNotDependOnWhoIsSlow) {
  // Otherwise losses would differ from run to run: a trailing minibatch is predicted, not trained
  // on.
  for (const std::string name : {"gpipe", "1f1b", "2bw", "interleaved", "zb-h1"}) {
    const auto workers = int(make_schedule(name, {.stages = 4}).workers.size());
    for (int slow = 0; slow < workers; ++slow) {
      FakePipeline rig = pipeline_of(name, 4, 11);
      PipelineOptions options;
      options.before_action = [slow](int worker, const Action&) {
        if (worker == slow) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      };
      EXPECT_EQ(rig.run(std::move(options)).trained, 8) << name;
      EXPECT_EQ(rig.steps.back()->samples('F'), every(1, 0, 11)) << name << ", slow: " << slow;
    }
  }
}

TEST(TrainEvery, MayChangeAtAnyTime) {
  std::atomic<std::int64_t> often{1};
  FakePipeline rig = pipeline_of("partime", 3, 60);
  PipelineOptions options{.train_every = &often};
  options.before_action = [&](int worker, const Action& action) {
    if (worker == 0 && action.op == Op::forward && action.sample == 20) often = 4;
    if (worker == 0 && action.op == Op::forward && action.sample == 41) often = 1;
  };
  const Outcome outcome = rig.run(std::move(options));
  std::vector<std::int64_t> expected = every(1, 0, 20);
  for (const std::int64_t sample : {23, 27, 31, 35, 39}) expected.push_back(sample);
  for (std::int64_t sample = 41; sample < 60; ++sample) expected.push_back(sample);
  EXPECT_EQ(rig.steps[2]->samples('B'), expected);
  EXPECT_EQ(outcome.trained, std::int64_t(expected.size()));
}

TEST(TrainEvery, ALimitIsOfSamplesThatAreLearnedFrom) {
  const std::atomic<std::int64_t> third{3};
  FakePipeline rig = pipeline_of("partime", 2, 300);
  EXPECT_EQ(numbers_of(rig.run({.limit = 10, .train_every = &third})), (Numbers{28, 10, 18, 0}));
}

}  // namespace
}  // namespace millrace::engine
