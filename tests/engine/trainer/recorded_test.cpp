// A pipeline of recorded steps equals the schedule's single-threaded meaning, bit for bit, on a
// device that defers work and runs it in any order that events allow.
#include <gtest/gtest.h>

#include "capture/stage_step.h"
#include "engine/pipeline/perform.h"
#include "engine/schedule/launch_groups.h"
#include "tests/capture/double_stream.h"
#include "tests/engine/late_feed.h"
#include "tests/engine/recording_place.h"
#include "tests/engine/trained.h"

namespace millrace::engine {
namespace {

/// Each recording backend. Few samples, but full pipelines: the host device is slow.
void expect_equals_the_oracle(const TrainerOptions& options) {
  const int samples = std::max(12, 3 * options.stages);
  for (const TrainerOptions& how : recorded(options))
    expect_equal(by_pipeline(how, samples), by_oracle(how, samples, 1, /*as_recorded=*/true));
}

class RecordedTest : public testing::TestWithParam<ScheduleCase> {};

TEST_P(RecordedTest, EqualsTheOracle) {
  expect_equals_the_oracle(small(GetParam()));
}

TEST_P(RecordedTest, TargetsThatComeLateGiveTheSameWeightsAndLosses) {
  for (const TrainerOptions& how : recorded(late(small(GetParam()))))
    expect_equal_with_late_targets(how,
                                   by_oracle(how, kLateSamples, 1, true, late_sample, told_most));
}

INSTANTIATE_TEST_SUITE_P(Schedules, RecordedTest, testing::ValuesIn(recorded_cases()),
                         [](const auto& info) { return name_of(info.param); });

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

/// Half of the stages eager, half recorded, each on a device of its own.
TEST(Recorded, BesideStagesThatAreNot) {
  TrainerOptions options = recorded(small("partime", 4, {2, 4, 6})).front();
  const Trained expected = by_pipeline(options, 40);
  options.records = [](int stage) { return stage == 1 || stage == 2; };
  const Trained got = by_pipeline(options, 40);
  for (std::size_t i = 0; i < got.losses.size(); ++i)
    EXPECT_NEAR(got.losses[i], expected.losses[i], 1e-5f);
}

TEST(Recorded, AnUpdateThatIsNotFiniteChangesNothing) {
  TrainerOptions options = small("partime", 2, {4});
  options.optimizer = {.kind = "adam", .lr = 0.01};
  for (const TrainerOptions& how : recorded(options)) {
    PastRun run(how, 40, [](std::int64_t n) { return n % 10 == 9; });
    for (const auto& [name, value] : run.trainer.state())
      EXPECT_TRUE(at::isfinite(value).all().item<bool>()) << name;
    const Reading reading = run.trainer.monitor().read();
    EXPECT_EQ(reading.skipped[1], 4);
    EXPECT_EQ(reading.updates[1], 36);
  }
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
    std::int64_t lag = -1;
    for (const TrainerOptions& how : recorded(options)) {
      PastRun run(how, 220, spoiled);
      Trainer& trainer = run.trainer;
      EXPECT_GE(trainer.guard().roll_backs(), 1);

      const std::int64_t slots = trainer.schedule().slots();
      lag = lag < 0 ? slots : 0;  // only the first backend is behind
      LossGuard guard(2 * slots);
      const Trained expected = by_oracle(how, 220, 1, true, sample, {}, &guard, lag);
      expect_equal_bits(trainer.state(), expected.weights);
      EXPECT_EQ(guard.roll_backs(), trainer.guard().roll_backs());
    }
  }
}

/// Loss and prediction are available while backward and update run.
TEST(Recorded, APredictionIsThereBeforeItsLaunchIsOver) {
  const TrainerOptions options = recorded(small("partime", 1, {})).front();
  const Schedule schedule = for_recording(schedule_of(options));
  capture::SampleBuffers samples(schedule.slots(), kShape.sizes(), {}, true);
  capture::StageStep step(std::move(build_stages(options, schedule)[0]), backend_there(),
                          device_there(), samples, nullptr, nullptr);
  capture_steps(schedule, {&step});
  int early = 0;
  for (int n = 0; n < 60 || (early == 0 && n < 5000); ++n) {  // this thread may be preempted
    const int slot = n % schedule.slots();
    samples.input[slot].copy_(sample_at(n, kShape).first);
    step.forward(slot, stages::kNewest);
    step.backward(slot, slot);
    step.update();
    const std::int64_t launch = step.launch();
    while (!step.shown(slot)) {
    }
    early += step.over(launch) ? 0 : 1;
    const float loss = step.loss(slot);
    step.synchronize();
    EXPECT_TRUE(step.over(launch));
    EXPECT_EQ(step.loss(slot), loss);
  }
  EXPECT_GT(early, 0);
}

/// A stage's state contains exactly the work launched before it was requested.
TEST(Recorded, ACheckpointOnTheWayIsTheWeightsOfItsSample) {
  for (const TrainerOptions& options : recorded(small("partime", 1, {}))) {
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
}

TEST(Recorded, WhatCanNotBeRecordedRunsEagerlyOrNotAtAll) {
  capture::refuse_recording(true);
  TrainerOptions options = small("partime", 2, {4});
  options.capture = Capture::graph;
  options.make_backend = [](c10::Device) { return capture::make_double_stream(false); };
  {
    Trainer trainer(options);
    SampleFeed feed(kShape, 10);
    EXPECT_THROW(trainer.run(feed, nullptr), std::runtime_error);
  }
  options.capture = Capture::automatic;
  Trainer trainer(options);
  SampleFeed feed(kShape, 10);
  EXPECT_EQ(trainer.run(feed, nullptr).trained, 10);
  EXPECT_FALSE(trainer.recording().on);
  EXPECT_NE(trainer.recording().error.find("not permitted"), std::string::npos);
  capture::refuse_recording(false);
}

TEST(Recorded, RefusesReplicas) {
  for (TrainerOptions options : recorded(small("pipedream", 2, {4}))) {
    options.replicas = {2, 1};
    if (!options.devices.empty()) options.devices.push_back(options.devices.back());
    EXPECT_THROW(Trainer{options}, std::invalid_argument);
    options.capture = Capture::automatic;
    EXPECT_FALSE(Trainer(options).recording().on);
  }
}

}  // namespace
}  // namespace millrace::engine
