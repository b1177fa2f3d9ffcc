#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "tests/engine/trained.h"

namespace millrace::engine {

/// Whether sample n has a target.
inline bool told_most(std::int64_t n) {
  return n % 11 != 5;
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

/// Ignores losses of samples without a target.
inline void expect_equal_losses(const std::vector<float>& got, const std::vector<float>& expected,
                                const LearnFunction& told) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t n = 0; n < got.size(); ++n) {
    if (told(std::int64_t(n))) {
      EXPECT_EQ(got[n], expected[n]) << "sample " << n;
    } else {
      EXPECT_TRUE(std::isnan(got[n])) << "sample " << n;
    }
  }
}

/// Samples of late_sample(), whose targets arrive only when `horizon` later samples were taken.
class LateFeed final : public Feed {
 public:
  LateFeed(std::int64_t end, std::int64_t horizon) : end_(end), horizon_(horizon) {}

  Status poll(std::chrono::microseconds) override {
    return next_ < end_ ? Status::ready : Status::end;
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
    if (++looks_ % 3 > 0 && next_ < std::min(end_, n + 1 + horizon_)) return Status::wait;
    if (!told_most(n)) return Status::end;
    write(late_sample(n).second, sample.target());
    return Status::ready;
  }

 private:
  static void write(const at::Tensor& from, std::span<float> to) {
    std::copy_n(from.const_data_ptr<float>(), to.size(), to.begin());
  }

  const std::int64_t end_, horizon_;
  std::atomic<std::int64_t> next_{0}, looks_{0};
};

constexpr std::int64_t kLateSamples = 44;

/// Trains on samples of late_sample(); told_most() says which have a target.
inline void expect_equal_with_late_targets(const TrainerOptions& options, const Trained& expected) {
  Trainer trainer(options);
  LateFeed feed(kLateSamples, 2);
  LossLog log;
  const Outcome outcome = trainer.run(feed, &log);
  EXPECT_GE(outcome.without_target, kLateSamples / 11);
  EXPECT_EQ(outcome.trained + outcome.without_target + outcome.rejected, kLateSamples);
  expect_equal_bits(trainer.state(), expected.weights);
  expect_equal_losses(log.losses, expected.losses, told_most);
}

}  // namespace millrace::engine
