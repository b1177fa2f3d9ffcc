#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "engine/trainer/checkpointer.h"
#include "engine/trainer/trainer.h"
#include "engine/trainer/trainer_sample.h"
#include "tests/engine/sample_feed.h"

namespace millrace::engine {
namespace {

TEST(Trainer, CorrectsForWeightsAsOldAsTheScheduleSays) {
  TrainerOptions options = tiny(4, {1, 2, 3});
  options.schedule = "pipedream";
  options.weights = stages::initial_state(*options.network, 1);
  for (const bool sync : {false, true}) {
    options.vertical_sync = sync;
    std::vector<std::int64_t> ages;
    for (const stages::Stage& stage : build_stages(options, schedule_of(options)))
      ages.push_back(stage.options().delay.updates);
    EXPECT_EQ(ages, (sync ? std::vector<std::int64_t>{3, 3, 3, 3}
                          : std::vector<std::int64_t>{3, 2, 1, 0}));
  }
}

/// Sets `drain` at a sample's number, which ends the run.
PipelineOptions drained_at(std::int64_t sample, std::atomic<bool>& drain) {
  PipelineOptions options{.drain = &drain};
  options.before_action = [&drain, sample](int worker, const Action& action) {
    if (worker == 0 && action.op == Op::forward && action.sample == sample) drain = true;
  };
  return options;
}

TEST(Recut, IsARunThatGoesOnFromACheckpoint) {
  for (const std::string schedule : {"sequential", "partime", "pipedream", "2bw"}) {
    TrainerOptions options = tiny(2, {2});
    options.schedule = schedule;
    options.optimizer = {.kind = "sgd", .lr = 0.05, .momentum = 0.9};
    Trainer first(options), cut_anew(options);
    SampleFeed part(kTiny, 16), same(kTiny, 40);
    first.run(part, nullptr);
    TrainerOptions rest = options;
    rest.cut = {4};
    rest.weights = first.checkpoint();
    Trainer second(rest);
    SampleFeed later(kTiny, 40, 16);
    second.run(later, nullptr);
    std::atomic<bool> drain{false};
    cut_anew.run(same, nullptr, drained_at(16, drain));
    cut_anew.recut({4});
    EXPECT_EQ(cut_anew.now().cut, std::vector<int>{4});
    cut_anew.run(same, nullptr);
    expect_equal_bits(cut_anew.checkpoint(), second.checkpoint());
  }
}

TEST(Checkpoint, HoldsWhatACorrectionHasMeasured) {
  for (const auto& [kind, more] : std::vector<std::pair<std::string, std::size_t>>{
           {"none", 0}, {"pipemare", 1}, {"discrepancy", 2}, {"gap-aware", 2}, {"dc-asgd", 1}}) {
    TrainerOptions options = tiny(2, {2});
    options.schedule = "pb";
    options.optimizer = {.kind = "sgd", .lr = 0.05};
    const std::size_t plain = Trainer(options).checkpoint().size();
    options.correction.kind = kind;
    Trainer first(options);
    SampleFeed feed(kTiny, 16);
    first.run(feed, nullptr);
    options.weights = first.checkpoint();
    EXPECT_EQ(options.weights.size(), plain + more * 2) << kind;  // the first stage's parameters
    expect_equal_bits(Trainer(options).checkpoint(), options.weights);
  }
}

TEST(Recut, RefusesACutThatCannotBe) {
  TrainerOptions options = tiny(2, {2});
  options.may_recut = true;
  Trainer trainer(options);
  EXPECT_EQ(trainer.options().module_ms.size(), 6u);
  EXPECT_TRUE(may_cut_at(trainer.options(), trainer.schedule(), {5}));
  EXPECT_FALSE(may_cut_at(trainer.options(), trainer.schedule(), {6}));
  EXPECT_FALSE(may_cut_at(trainer.options(), trainer.schedule(), {2, 3}));
  EXPECT_THROW(trainer.recut({6}), std::invalid_argument);
  EXPECT_EQ(trainer.now().cut, std::vector<int>{2});
}

TEST(TrainerSample, MakesFloatsOfBytesOnceAFrame) {
  capture::SampleBuffers buffers(2, {1, 1, 2, 2}, {}, false, {.input = true});
  TrainerSample first(buffers, 0, 1), second(buffers, 1, 1);
  std::ranges::fill(second.input_bytes(), 255);
  EXPECT_EQ(second.shown_input()[3], 1.0f);
  buffers.input[1].fill_(51);
  EXPECT_EQ(second.shown_input()[3], 1.0f);
  EXPECT_EQ(first.shown_input()[3], 0.0f);
  second.input_bytes();  // another frame is written
  EXPECT_EQ(second.shown_target()[3], 0.2f);
}

TrainerOptions in_sequence(int stages, std::vector<int> cut, const std::string& optimizer) {
  TrainerOptions options = tiny(stages, std::move(cut), optimizer);
  options.schedule = "sequential";
  options.optimizer.lr = 0.05;
  options.optimizer.momentum = 0.9;
  options.optimizer.schedule = "cosine";  // its rate is another one at each update
  options.optimizer.T_max = 30;
  options.optimizer.warmup = 4;
  return options;
}

TEST(Checkpoint, GoingOnFromOneEqualsNeverHavingStopped) {
  for (const std::string& optimizer : stages::optimizer_names()) {
    Trainer whole(in_sequence(2, {2}, optimizer)), first(in_sequence(2, {2}, optimizer));
    SampleFeed all(kTiny, 40), part(kTiny, 25);
    whole.run(all, nullptr);
    first.run(part, nullptr);
    TrainerOptions options = in_sequence(3, {1, 4}, optimizer);  // another cut
    options.weights = first.checkpoint();
    Trainer second(options);
    SampleFeed rest(kTiny, 40, 25);
    second.run(rest, nullptr);
    expect_equal_bits(second.state(), whole.state());
  }
}

/// Expects a two-stage run of so many samples, whose second stage is `behind` samples behind, to
/// write checkpoints after those that are `expected`.
void expect_written(std::int64_t behind, std::int64_t samples,
                    const std::vector<std::int64_t>& expected,
                    const std::function<void(Checkpointer&, std::int64_t)>& meanwhile) {
  std::vector<std::int64_t> written;
  std::int64_t at[2] = {};
  Checkpointer checkpointer(
      2, 10,
      [&](int stage) {
        return stages::StateDict{{std::to_string(stage), at::full({1}, double(at[stage]))}};
      },
      [&](const stages::StateDict& state, std::int64_t) {
        EXPECT_TRUE(at::equal(state[0].second, state[1].second)) << "stages of different samples";
        written.push_back(std::int64_t(state[0].second.item<double>()));
      });
  const auto pass = [&](int stage, std::int64_t sample) {
    if (sample < 0 || sample >= samples) return;
    at[stage] = sample + 1;
    const std::int64_t before = checkpointer.written();
    checkpointer.after_sample(stage, sample);
    // Each is written before a newer one can replace it.
    if (stage == 1 && std::ranges::count(expected, sample + 1) == 1) {
      while (checkpointer.written() == before)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  for (std::int64_t sample = 0; sample < samples + behind; ++sample) {
    meanwhile(checkpointer, sample);
    pass(0, sample);
    pass(1, sample - behind);
  }
  checkpointer.finish();
  EXPECT_EQ(checkpointer.error(), "");
  EXPECT_EQ(written, expected);
}

TEST(Checkpointer, EveryMayChangeWhileStagesAreApart) {
  // 20 is incomplete; every checkpoint is of one sample.
  expect_written(3, 60, {10, 30, 45}, [](Checkpointer& checkpointer, std::int64_t sample) {
    if (sample == 21) checkpointer.set_every(15);  // the first stage passed 20, the other did not
    if (sample == 50) checkpointer.set_every(0);
  });
}

TEST(Checkpointer, ADemandIsMetBesideARegularOne) {
  const std::vector<std::int64_t> expected = {10, 20, 21, 30, 40};
  expect_written(2, 40, expected, [](Checkpointer& checkpointer, std::int64_t sample) {
    if (sample == 12) checkpointer.ask(19);  // due with the regular one of 20
  });
}

TrainerOptions guarded(const std::string& schedule, const std::string& optimizer) {
  TrainerOptions options = tiny(2, {2}, optimizer);
  options.schedule = schedule;
  options.optimizer.lr = 0.01;
  options.guard = true;
  return options;
}

TEST(BadFrames, NoneWithoutNumbersChangesAWeight) {
  const auto spoiled = [](std::int64_t n) { return n % 100 == 57; };
  for (const std::string& optimizer : stages::optimizer_names()) {
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      Trainer trainer(guarded("sequential", optimizer));
      SampleFeed feed(kTiny, 300);
      feed.rewrite = [&](std::int64_t n, std::span<float> to) {
        if (spoiled(n)) to[std::size_t(n) % to.size()] = bad;
      };
      std::vector<stages::StateDict> last(2);
      std::atomic<int> held{0};  // the stages have a thread each
      PipelineOptions options;
      options.after_sample = [&](int stage, std::int64_t sample) {
        stages::StateDict now = trainer.checkpoint(stage);
        if (spoiled(sample)) {
          expect_equal_bits(now, last[std::size_t(stage)]);
          ++held;
        }
        for (auto& [name, value] : now) value = value.clone();
        last[std::size_t(stage)] = std::move(now);
      };
      trainer.run(feed, nullptr, options);
      EXPECT_EQ(held.load(), 2 * 3) << optimizer;
    }
  }
}

TEST(BadFrames, BlackAndWhiteOnesAreLearnedFromLikeAnyOther) {
  for (const std::string schedule : {"partime", "pipedream", "1f1b"}) {
    for (const float value : {0.0f, 1.0f}) {
      Trainer trainer(guarded(schedule, "adam"));
      SampleFeed feed(kTiny, 400);
      feed.rewrite = [&](std::int64_t, std::span<float> to) { std::ranges::fill(to, value); };
      LossLog log;
      trainer.run(feed, &log);
      for (const auto& [name, tensor] : trainer.state())
        EXPECT_TRUE(at::isfinite(tensor).all().item<bool>()) << schedule << " " << name;
      ASSERT_EQ(log.losses.size(), 400u);
      EXPECT_LT(log.losses.back(), 0.5f * log.losses.front()) << schedule << ", all " << value;
    }
  }
}

}  // namespace
}  // namespace millrace::engine
