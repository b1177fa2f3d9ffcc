// The pipeline itself, on steps that compute nothing: order, hand-off, ends. Run by
// ThreadSanitizer.
#include "engine/pipeline.h"

#include <gtest/gtest.h>

#include <random>     // disturbance
#include <stdexcept>  // failures
#include <thread>     // disturbance
#include "tests/engine/empty_step.h"

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
  void prepare() override {}
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
  float loss(int slot) const override { return float(kept_[slot]); }

  std::vector<std::int64_t> seen;
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
        steps[schedule.unit(i, replica)]->meet(replicas_of(i));
    }
  }

  std::vector<const FakeStep*> replicas_of(int stage) const {
    std::vector<const FakeStep*> all;
    for (int replica = 0; replica < schedule.replicas_of(stage); ++replica)
      all.push_back(steps[schedule.unit(stage, replica)].get());
    return all;
  }

  struct CountingFeed final : Feed {
    CountingFeed(std::vector<std::int64_t>& slots, std::int64_t count)
        : input(slots), samples(count) {}
    Status poll(std::chrono::microseconds patience) override { return next < samples ? Status::ready : Status::end; }
    void take(int slot, SampleInfo& info) override {
      if (next == fail_at) throw std::runtime_error("feed failed");
      input[slot] = next;
      info.frame = next++;
    }
    std::vector<std::int64_t>& input;
    std::int64_t samples, next = 0, fail_at = -1;
  };

  Outcome run(PipelineOptions options = {}) {
    std::vector<capture::Step*> list;
    for (const auto& step : steps) list.push_back(step.get());
    Monitor monitor(schedule.replica_counts(), 0.0);
    return Pipeline(schedule, list, feed, nullptr, monitor, std::move(options)).run();
  }

  Schedule schedule;
  std::vector<std::int64_t> input;
  std::vector<Boundary> boundaries;
  CountingFeed feed;
  std::vector<std::unique_ptr<FakeStep>> steps;
};

PipelineOptions random_sleeps() {
  PipelineOptions options;
  options.before_action = [](int worker, const Action&) {
    thread_local std::mt19937 random{std::uint32_t(worker)};
    if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
  };
  return options;
}

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

TEST(Pipeline, SequentialFinishesASampleBeforeTheNext) {
  Rig rig("sequential", 4, 100);
  EXPECT_EQ(rig.run(random_sleeps()).trained, 100);
  for (const auto& step : rig.steps) {
    for (const auto& [sample, gradient] : step->backwards) EXPECT_EQ(sample, gradient);
    EXPECT_EQ(step->updates, 100);
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

TEST(Pipeline, TheFirstFailureStopsEverybody) {
  Rig rig("partime", 4, 1000);
  rig.feed.fail_at = 50;
  EXPECT_THROW(rig.run(), std::runtime_error);
}

TEST(Pipeline, AFailingWorkerStopsItsNeighbours) {
  Rig rig("partime", 3, 1000);
  PipelineOptions options;
  options.before_action = [](int worker, const Action& action) {
    if (worker == 2 && action.sample == 20) throw std::runtime_error("stage 2 failed");
  };
  EXPECT_THROW(rig.run(options), std::runtime_error);
}

}  // namespace
}  // namespace millrace::engine
