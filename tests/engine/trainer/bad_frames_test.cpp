#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>

#include "tests/engine/sample_feed.h"

namespace millrace::engine {
namespace {

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
