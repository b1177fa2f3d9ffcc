// The pipeline itself, on steps that compute nothing: order, hand-off, ends. Run by
// ThreadSanitizer.
#include "engine/pipeline/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <stdexcept>
#include <thread>

#include "tests/engine/counted_feed.h"
#include "tests/engine/empty_step.h"
#include "tests/engine/random_sleeps.h"
#include "tests/engine/stall_watch.h"

namespace millrace::engine {
namespace {

/// Plain (not atomic) memory that stages share by slot, so that a missing hand-off is a data race
/// the sanitizer sees and a wrong number the test sees.
struct Boundary {
  std::vector<std::int64_t> activation, gradient;
};

class FakeStep final : public EmptyStep {
 public:
  FakeStep(std::vector<std::int64_t>& input, Boundary* up, Boundary* down)
      : input_(input), up_(up), down_(down) {
    kept_.resize(input.size());
  }
  void forward(int slot, std::int64_t) override {
    kept_[slot] = up_ ? up_->activation[slot] : input_[slot];
    seen.push_back(kept_[slot]);
    if (down_) down_->activation[slot] = kept_[slot];
  }
  void backward(int slot, int gradient_slot) override {
    const std::int64_t gradient = down_ ? down_->gradient[gradient_slot] : kept_[slot];
    backwards.push_back({kept_[slot], gradient});
    if (up_) up_->gradient[slot] = kept_[slot];
    sums_[updates % 2] = kept_[slot];
  }
  void update() override {
    for (const FakeStep* other : replicas_) met.push_back(other->sums_[updates % 2]);
    ++updates;
  }
  /// Updates read what each of `replicas` has added up.
  void meet(std::vector<const FakeStep*> replicas) { replicas_ = std::move(replicas); }
  void backward_input(int slot, int gradient_slot) override { backward(slot, gradient_slot); }
  void skip_update() override { ++skipped; }
  void discard(int slot) override { discarded.push_back(kept_[slot]); }
  void leave_out(int slot) override { discard(slot); }
  void recompute(int slot) override { recomputed.push_back(kept_[slot]); }
  float loss(int slot) const override { return float(kept_[slot]); }

  std::vector<std::int64_t> seen;
  std::vector<std::int64_t> discarded, recomputed;               ///< samples
  std::int64_t skipped = 0;                                      ///< updates
  std::vector<std::pair<std::int64_t, std::int64_t>> backwards;  ///< sample, whose gradient
  std::int64_t updates = 0;
  std::vector<std::int64_t> met;  ///< samples of all replicas' gradients, update by update

 private:
  std::vector<std::int64_t>& input_;
  Boundary* up_;
  Boundary* down_;
  std::vector<std::int64_t> kept_;
  std::int64_t sums_[2] = {};
  std::vector<const FakeStep*> replicas_;
};

/// A pipeline over fake steps, all its memory included.
struct Rig {
  Rig(const std::string& name, int stages, std::int64_t samples, std::vector<int> replicas = {})
      : schedule(make_schedule(name, {.stages = stages, .replicas = std::move(replicas)})),
        monitor(schedule.replica_counts(), 0.0),
        input(schedule.slots()),
        feed(input, samples) {
    boundaries.resize(stages, {std::vector<std::int64_t>(schedule.slots()),
                               std::vector<std::int64_t>(schedule.slots())});
    for (int i = 0; i < stages; ++i) {
      for (int replica = 0; replica < schedule.replicas_of(i); ++replica) {
        steps.push_back(std::make_unique<FakeStep>(input, i > 0 ? &boundaries[i - 1] : nullptr,
                                                   i + 1 < stages ? &boundaries[i] : nullptr));
      }
    }
    for (int i = 0; i < stages; ++i) {
      for (int replica = 0; replica < schedule.replicas_of(i); ++replica)
        steps[schedule.replica_id(i, replica)]->meet(replicas_of(i));
    }
  }

  std::vector<const FakeStep*> replicas_of(int stage) const {
    std::vector<const FakeStep*> all;
    for (int replica = 0; replica < schedule.replicas_of(stage); ++replica)
      all.push_back(steps[schedule.replica_id(stage, replica)].get());
    return all;
  }

  struct NumberFeed final : CountedFeed {
    NumberFeed(std::vector<std::int64_t>& slots, std::int64_t count)
        : CountedFeed(count), input(slots) {}
    void fill(std::int64_t n, Sample& sample) override { input[sample.slot] = n; }
    std::vector<std::int64_t>& input;
  };

  Outcome run(PipelineOptions options = {}) {
    std::vector<capture::Step*> list;
    for (const auto& step : steps) list.push_back(step.get());
    const StallWatch watch(schedule, options);
    return Pipeline(schedule, list, feed, nullptr, monitor, std::move(options)).run();
  }

  Schedule schedule;
  Monitor monitor;
  std::vector<std::int64_t> input;
  std::vector<Boundary> boundaries;
  NumberFeed feed;
  std::vector<std::unique_ptr<FakeStep>> steps;
};

TEST(Pipeline, EveryGradientMeetsItsSample) {
  for (const int stages : {1, 2, 3, 5}) {
    for (const bool disturbed : {false, true}) {
      Rig rig("partime", stages, 300);
      const Outcome outcome = rig.run(disturbed ? random_sleeps() : PipelineOptions{});
      EXPECT_EQ(outcome.trained, 300);
      for (int i = 0; i < stages; ++i) {
        const std::int64_t d = stages - 1 - i;
        EXPECT_EQ(rig.steps[i]->seen.size(), 300u);
        ASSERT_EQ(std::int64_t(rig.steps[i]->backwards.size()), 300 - 2 * d);
        for (std::int64_t n = 0; n < 300 - 2 * d; ++n) {
          const auto [sample, gradient] = rig.steps[i]->backwards[n];
          EXPECT_EQ(sample, n + 2 * d);
          EXPECT_EQ(gradient, d == 0 ? sample : sample - 2);
        }
        EXPECT_EQ(rig.steps[i]->updates, 300 - 2 * d);
      }
    }
  }
}

TEST(Pipeline, GradientAgesAreThoseOfTheSteadyStateThoughItDrains) {
  using Ages = std::vector<std::int64_t>;
  for (const auto& [name, ages] : {std::pair<std::string, Ages>{"pb", {6, 4, 2, 0}},
                                   {"pipedream", {3, 2, 1, 0}},
                                   {"partime", {6, 4, 2, 0}},
                                   {"sequential", {0, 0, 0, 0}},
                                   {"2bw", {4, 4, 4, 4}}}) {
    Rig rig(name, 4, 40);
    rig.run(random_sleeps());
    const Reading reading = rig.monitor.read();
    EXPECT_EQ(reading.gradient_age, ages) << name;
    for (int stage = 0; stage < 4; ++stage)
      EXPECT_EQ(reading.gradient_age_spread[stage], std::pair(ages[stage], ages[stage])) << name;
  }
}

TEST(Pipeline, ReplicasTakeSamplesInTurnAndMeetAtEachUpdate) {
  for (const std::vector<int>& replicas : {std::vector<int>{2, 1}, {1, 3}, {2, 3, 2}, {3}}) {
    Rig rig("pipedream", int(replicas.size()), 200, replicas);
    const Outcome outcome = rig.run(random_sleeps());
    EXPECT_EQ(outcome.admitted, 200);
    EXPECT_EQ(outcome.trained, rig.schedule.trained(200));
    for (int stage = 0; stage < int(replicas.size()); ++stage) {
      for (const FakeStep* step : rig.replicas_of(stage)) {
        EXPECT_EQ(step->updates, 200 / replicas[stage]);
        for (std::size_t n = 0; n < step->met.size(); ++n)
          ASSERT_EQ(step->met[n], std::int64_t(n)) << "an update covers each replica's sample";
      }
    }
  }
}

TEST(Pipeline, AnEmptyStreamEndsAtOnce) {
  for (const int stages : {1, 3}) {
    Rig rig("partime", stages, 0);
    const Outcome outcome = rig.run();
    EXPECT_EQ(outcome.admitted, 0);
    EXPECT_EQ(outcome.trained, 0);
  }
}

TEST(Pipeline, AStreamShorterThanThePipelineIsStillTrained) {
  Rig rig("partime", 6, 2);
  EXPECT_EQ(rig.run().trained, 2);
  EXPECT_EQ(rig.steps[5]->updates, 2);
  EXPECT_EQ(rig.steps[4]->updates, 0);
}

TEST(Pipeline, AFailingWorkerStopsItsNeighbours) {
  Rig rig("partime", 3, 1000);
  PipelineOptions options;
  options.before_action = [](int worker, const Action& action) {
    if (worker == 2 && action.sample == 20) throw std::runtime_error("stage 2 failed");
  };
  EXPECT_THROW(rig.run(options), std::runtime_error);
}

TEST(Pipeline, ASlowStageHasNoMoreThanTheSlotsBeforeIt) {
  // So that what is learned from is no older than the queue's frames and these, however slow.
  for (const std::string name : {"partime", "pb", "pipedream", "sequential"}) {
    for (const int stages : {2, 3, 5}) {
      Rig rig(name, stages, 100);
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

std::vector<std::int64_t> samples_of(
    const std::vector<std::pair<std::int64_t, std::int64_t>>& backwards) {
  std::vector<std::int64_t> samples;
  for (const auto& [sample, gradient] : backwards) samples.push_back(sample);
  return samples;
}

/// Every `step`-th number from `first` on, less than `end`.
std::vector<std::int64_t> every(std::int64_t step, std::int64_t first, std::int64_t end) {
  std::vector<std::int64_t> numbers;
  for (; first < end; first += step) numbers.push_back(first);
  return numbers;
}

TEST(TrainEvery, ALeftOutSampleCostsAForwardAndNoMoreInEveryStage) {
  const std::atomic<std::int64_t> third{3};
  for (const std::string name : {"partime", "pb", "pipedream", "sequential"}) {
    for (const int stages : {1, 2, 3, 5}) {
      Rig rig(name, stages, 300);
      const Outcome outcome = rig.run(random_sleeps(&third));
      EXPECT_EQ(outcome.trained, 100);
      EXPECT_EQ(outcome.predicted_only, 200);
      EXPECT_EQ(outcome.admitted, 300);
      EXPECT_EQ(rig.monitor.tally().counts().trained, 100);
      EXPECT_EQ(rig.monitor.tally().counts().predicted_only, 200);
      for (int i = 0; i < stages; ++i) {
        // partime's gradients meet the sample that is there: 2d later, and learn of every third.
        const std::int64_t late = name == "partime" ? 2 * (stages - 1 - i) : 0;
        const FakeStep& step = *rig.steps[i];
        EXPECT_EQ(step.seen, every(1, 0, 300));
        EXPECT_EQ(samples_of(step.backwards), every(3, late, 300)) << name << " stage " << i;
        EXPECT_EQ(step.updates, std::int64_t(step.backwards.size()));
        EXPECT_EQ(step.updates + step.skipped, 300 - late);
        EXPECT_EQ(std::int64_t(step.discarded.size() + step.backwards.size()), 300);
        EXPECT_EQ(rig.monitor.read().updates[i], step.updates);
        EXPECT_EQ(rig.monitor.read().skipped[i], 0) << "it was not left out for cause";
      }
    }
  }
}

TEST(TrainEvery, ChoosesWholeUpdates) {
  const std::atomic<std::int64_t> second{2};
  for (const std::string name : {"gpipe", "1f1b", "interleaved", "zb-h1", "2bw"}) {
    Rig rig(name, 4, 30);  // minibatches of 4, and half a one
    const Outcome outcome = rig.run(random_sleeps(&second));
    EXPECT_EQ(outcome.trained, 16) << name;
    EXPECT_EQ(outcome.predicted_only, 12) << name;
    EXPECT_EQ(outcome.rejected, 2) << name;
    for (const auto& step : rig.steps) {
      EXPECT_EQ(step->updates, 4) << name;
      EXPECT_EQ(step->skipped, 3) << name;
      for (const std::int64_t sample : samples_of(step->backwards)) EXPECT_EQ(sample / 4 % 2, 0);
    }
  }
}

TEST(TrainEvery, ReplicasLeaveOutTheSame) {
  const std::atomic<std::int64_t> second{2};
  Rig rig("pipedream", 2, 25, {2, 3});
  const Outcome outcome = rig.run(random_sleeps(&second));  // by 6: 0, 12 and the 1 at 24
  EXPECT_EQ(outcome.trained, 12);
  EXPECT_EQ(outcome.predicted_only, 12);
  EXPECT_EQ(outcome.rejected, 1);
  EXPECT_EQ(rig.monitor.tally().counts().trained, 12);
  for (const auto& step : rig.steps) {
    for (const std::int64_t sample : samples_of(step->backwards)) EXPECT_EQ(sample / 6 % 2, 0);
  }
}

/// Shows what it predicts long before its launch is over.
class SlowToEnd final : public EmptyStep, public Observer {
 public:
  bool defers() const override { return true; }
  void forward(int, std::int64_t) override { ++called_; }
  std::int64_t launch() override { return launched_ = called_; }
  bool shown(int) const override { return true; }
  /// When its prediction was told, or after so many looks that it clearly is not.
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
  Pipeline(schedule, {&step}, feed, &step, monitor, {}).run();
  EXPECT_FALSE(step.gave_up);
}

/// Gives a target only once the prediction that it is held against was shown.
class ShownFirst final : public Feed, public Observer {
 public:
  explicit ShownFirst(std::int64_t end) : end_(end) {}
  Status poll(std::chrono::microseconds) override {
    return next_ < end_ ? Status::ready : Status::end;
  }
  void take(Sample& sample) override { sample.info = {.frame = next_++, .captured = Clock::now()}; }
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
  std::int64_t next_ = 0;
  const std::int64_t end_;
  std::atomic<std::int64_t> shown_{0};
};

TEST(LateTargets, APredictionIsShownBeforeItsTargetComes) {
  for (const std::string name : {"partime", "pb", "pipedream", "1f1b", "zb-h1", "sequential"}) {
    for (const int stages : {1, 3}) {
      Rig rig(name, stages, 0);
      ShownFirst feed(60);
      std::vector<capture::Step*> steps;
      for (const auto& step : rig.steps) steps.push_back(step.get());
      PipelineOptions options = random_sleeps();
      options.late_targets = true;
      const StallWatch watch(rig.schedule, options);
      const Outcome outcome =
          Pipeline(rig.schedule, steps, feed, &feed, rig.monitor, std::move(options)).run();
      EXPECT_EQ(feed.told, 60) << name;
      EXPECT_EQ(outcome.trained + outcome.untold, 60) << name;
      EXPECT_GE(outcome.untold, 9) << name;
    }
  }
}

/// Does at its launch, in no time, what it was called for.
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
  PipelineOptions options{.late_targets = true};
  const StallWatch watch(schedule, options);
  Pipeline(schedule, {&step}, feed, &feed, monitor, std::move(options)).run();
  EXPECT_EQ(feed.told, 20);
}

TEST(TrainEvery, LeavesRecomputingOut) {
  const std::atomic<std::int64_t> fourth{4};
  Rig rig("pb", 2, 40);
  add_recompute(rig.schedule);
  rig.run({.train_every = &fourth});
  for (const auto& step : rig.steps) EXPECT_EQ(step->recomputed, every(4, 0, 40));
}

TEST(Pipeline, WhichSamplesArePredictedDoesNotDependOnWhoIsSlow) {
  // Else losses would differ from run to run: a trailing minibatch is predicted, not learned from.
  for (const std::string name : {"gpipe", "1f1b", "2bw", "interleaved", "zb-h1"}) {
    const auto workers = int(Rig(name, 4, 0).schedule.workers.size());
    for (int slow = 0; slow < workers; ++slow) {
      Rig rig(name, 4, 11);
      PipelineOptions options;
      options.before_action = [slow](int worker, const Action&) {
        if (worker == slow) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      };
      EXPECT_EQ(rig.run(std::move(options)).trained, 8) << name;
      EXPECT_EQ(rig.steps.back()->seen, every(1, 0, 11)) << name << ", slow: " << slow;
    }
  }
}

TEST(TrainEvery, MayChangeAtAnyTime) {
  std::atomic<std::int64_t> often{1};
  Rig rig("partime", 3, 60);
  PipelineOptions options{.train_every = &often};
  options.before_action = [&](int worker, const Action& action) {
    if (worker == 0 && action.op == Op::forward && action.sample == 20) often = 4;
    if (worker == 0 && action.op == Op::forward && action.sample == 41) often = 1;
  };
  const Outcome outcome = rig.run(std::move(options));
  std::vector<std::int64_t> expected = every(1, 0, 20);
  for (const std::int64_t sample : {23, 27, 31, 35, 39}) expected.push_back(sample);
  for (std::int64_t sample = 41; sample < 60; ++sample) expected.push_back(sample);
  EXPECT_EQ(samples_of(rig.steps[2]->backwards), expected);
  EXPECT_EQ(outcome.trained, std::int64_t(expected.size()));
}

TEST(TrainEvery, ALimitIsOfSamplesThatAreLearnedFrom) {
  const std::atomic<std::int64_t> third{3};
  Rig rig("partime", 2, 300);
  const Outcome outcome = rig.run({.limit = 10, .train_every = &third});
  EXPECT_EQ(outcome.trained, 10);
  EXPECT_EQ(outcome.predicted_only, 18);
  EXPECT_EQ(outcome.admitted, 28);
}

TEST(Drain, EndsAtAWholeUpdateAndAnotherRunGoesOn) {
  for (const std::string name : {"partime", "1f1b"}) {
    std::atomic<bool> drain{false};
    Rig rig(name, 3, 100);
    std::int64_t last = -1;
    PipelineOptions options{.drain = &drain};
    options.before_action = [&](int worker, const Action& action) {
      if (worker == 0 && action.op == Op::forward && action.sample == 21) drain = true;
    };
    const Outcome first = rig.run(options);
    EXPECT_EQ(first.admitted, name == "partime" ? 21 : 24);
    EXPECT_EQ(first.trained, first.admitted);
    options = {.before = first.admitted};
    options.after_sample = [&](int stage, std::int64_t sample) {
      if (stage == 0) last = sample;
    };
    const Outcome second = rig.run(options);
    EXPECT_EQ(first.admitted + second.admitted, 100);
    EXPECT_EQ(last, 99);
    EXPECT_EQ(rig.steps[0]->seen, every(1, 0, 100));
    EXPECT_EQ(rig.monitor.tally().counts().trained, first.trained + second.trained);
  }
}

}  // namespace
}  // namespace millrace::engine
