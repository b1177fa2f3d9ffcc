#include "engine/trainer/trainer.h"

#include <gtest/gtest.h>

#include <atomic>

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

/// Its output would be trained by a head.
TEST(Trainer, AStageThatLearnsByItselfIsNotLeftWithoutWeightsAtTheEnd) {
  for (const char* correction : {"none", "local", "deep-supervision"}) {
    TrainerOptions options = tiny(2, {});
    options.correction.kind = correction;
    options.module_ms = {1, 1, 1, 1, 1, 9};
    EXPECT_EQ(Trainer(options).now().cut.front() == 5, std::string(correction) == "none");
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

TEST(TrainerSample, ShowsFloatsWhereTheyLie) {
  capture::SampleBuffers buffers(1, {1, 1, 2, 2}, {1, 1, 2, 2});
  TrainerSample sample(buffers, 0, 1);
  EXPECT_EQ(sample.shown_input().data(), sample.input().data());
  EXPECT_EQ(sample.memory()[1].data(), reinterpret_cast<std::byte*>(sample.target().data()));
}

}  // namespace
}  // namespace millrace::engine
