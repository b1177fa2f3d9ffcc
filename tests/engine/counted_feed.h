#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "engine/pipeline/pipeline.h"

namespace millrace::engine {

/// Frames from `begin` to before `end`, filled in by a derived class.
class CountedFeed : public Feed {
 public:
  explicit CountedFeed(std::int64_t end, std::int64_t begin = 0) : next_(begin), end_(end) {}
  Status poll(std::chrono::microseconds) override {
    return next_ < end_ ? Status::ready : Status::end;
  }
  void take(Sample& sample) final {
    sample.info = {.frame = next_, .captured = Clock::now()};
    fill(next_++, sample);
  }

 protected:
  virtual void fill(std::int64_t, Sample&) {}

  std::int64_t next_;

 private:
  const std::int64_t end_;
};

/// Frames of zeros until `end`; counts something at the `first` and the `last` frame.
class MeasuringFeed final : public CountedFeed {
 public:
  MeasuringFeed(std::int64_t first, std::int64_t last, std::int64_t end,
                std::function<long()> count)
      : CountedFeed(end), first_(first), last_(last), count_(std::move(count)) {}
  long before = 0, after = -1;

 private:
  void fill(std::int64_t n, Sample& sample) override {
    if (n == first_) before = count_();
    if (n == last_) after = count_();
    std::ranges::fill(sample.input(), 0.0f);
  }
  const std::int64_t first_, last_;
  const std::function<long()> count_;
};

/// Every third action begins up to half a millisecond late.
inline PipelineOptions random_sleeps(const std::atomic<std::int64_t>* train_every = nullptr) {
  PipelineOptions options{.train_every = train_every};
  options.before_action = [](int worker, const Action&) {
    thread_local std::mt19937 random{std::uint32_t(worker)};
    if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
  };
  return options;
}

}  // namespace millrace::engine
