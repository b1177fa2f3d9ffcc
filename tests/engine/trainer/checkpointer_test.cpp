#include "engine/trainer/checkpointer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "tests/engine/sample_feed.h"

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

}  // namespace
}  // namespace millrace::engine
