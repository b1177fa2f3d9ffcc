#include "engine/trainer/checkpointer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>

#include "tests/engine/tiny.h"

namespace millrace::engine {
namespace {

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

TEST(Checkpointer, SnapshotsAreWhatARunStoppedThereHolds) {
  Trainer stopped(in_sequence(3, {1, 4}, "adam")), running(in_sequence(3, {1, 4}, "adam"));
  SampleFeed ten(kTiny, 10), many(kTiny, 25);
  stopped.run(ten, nullptr);
  std::vector<stages::StateDict> written;
  std::vector<std::int64_t> counted;
  Checkpointer checkpointer(
      3, 10, [&](int stage) { return running.checkpoint(stage); },
      [&](const stages::StateDict& state, std::int64_t samples) {
        written.push_back(state);
        counted.push_back(samples);
      });
  PipelineOptions options;
  options.after_sample = [&](int stage, std::int64_t sample) {
    checkpointer.after_sample(stage, sample);
  };
  options.before_action = [&](int, const Action& action) {
    // Lets the writer take the first snapshot before the second can replace it.
    if (action.sample == 15) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  };
  running.run(many, nullptr, options);
  checkpointer.finish();
  EXPECT_EQ(checkpointer.error(), "");
  ASSERT_EQ(written.size(), 2u);
  expect_equal_bits(written[0], stopped.checkpoint());
  EXPECT_EQ(counted, (std::vector<std::int64_t>{10, 20}));
}

TEST(Checkpointer, TellsOfAFailureToWriteUntilOneIsWrittenAgain) {
  std::atomic<bool> full{true};
  Checkpointer checkpointer(
      1, 1,
      [](int) {
        return stages::StateDict{{"a", at::ones({1})}};
      },
      [&](const stages::StateDict&, std::int64_t) {
        if (full) throw std::runtime_error("disk full");
      });
  const auto pass = [&](std::int64_t sample) {
    const std::int64_t before = checkpointer.written() + checkpointer.failed();
    checkpointer.after_sample(0, sample);
    while (checkpointer.written() + checkpointer.failed() == before)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  pass(0);
  pass(1);
  full = false;
  pass(2);
  checkpointer.finish();
  EXPECT_EQ(checkpointer.failed(), 2);
  EXPECT_EQ(checkpointer.error(), "");
}

/// Samples after which a two-stage run wrote a checkpoint; the second stage is `behind` samples
/// behind.
std::vector<std::int64_t> written_after(
    std::int64_t behind, std::int64_t samples,
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
    if (stage == 1 && (sample + 1) % 5 == 0) {
      for (int i = 0; i < 200 && checkpointer.written() == before; ++i)
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
  return written;
}

TEST(Checkpointer, EveryMayChangeWhileStagesAreApart) {
  const auto written = written_after(3, 60, [](Checkpointer& checkpointer, std::int64_t sample) {
    if (sample == 21) checkpointer.set_every(15);  // the first stage passed 20, the other did not
    if (sample == 50) checkpointer.set_every(0);
  });
  // 20 is incomplete; every checkpoint is of one sample.
  EXPECT_EQ(written, (std::vector<std::int64_t>{10, 30, 45}));
}

TEST(Checkpointer, ADemandIsMetBesideARegularOne) {
  const auto written = written_after(2, 40, [](Checkpointer& checkpointer, std::int64_t sample) {
    if (sample == 12) checkpointer.ask(19);  // due with the regular one of 20
  });
  EXPECT_EQ(written, (std::vector<std::int64_t>{10, 20, 21, 30, 40}));
}

}  // namespace
}  // namespace millrace::engine
