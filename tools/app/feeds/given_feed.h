// Samples from the caller's memory, and predictions back to the caller.
#pragma once

#include <readerwriterqueue/readerwritercircularbuffer.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "engine/pipeline/feed.h"

namespace millrace::app {

struct Given {
  const float* input = nullptr;  ///< null: there are no more
  const float* target = nullptr;
};

/// Copies from the caller's memory to the engine's slots. Used by stage 0's worker, except give(),
/// waiting() and stop(), which are the caller's.
class GivenFeed final : public engine::Feed {
 public:
  explicit GivenFeed(std::size_t ahead) : waiting_(ahead + 1) {}

  void give(const Given& sample) { waiting_.wait_enqueue(sample); }
  int waiting() const { return int(waiting_.size_approx()); }
  void stop() { stopping_.store(true, std::memory_order_relaxed); }

  Status poll(std::chrono::microseconds patience) override {
    if (over_ || stopping_.load(std::memory_order_relaxed)) return Status::end;
    if (next_.input) return Status::ready;
    if (!waiting_.wait_dequeue_timed(next_, patience)) return Status::wait;
    over_ = !next_.input;
    return over_ ? Status::end : Status::ready;
  }

  void take(engine::Sample& sample) override {
    const std::span<float> input = sample.input(), target = sample.target();
    const bool is_own_target = target.data() == input.data();
    std::copy_n(next_.input, input.size(), input.begin());
    if (!is_own_target && next_.target) std::copy_n(next_.target, target.size(), target.begin());
    sample.info = {.frame = taken_++,
                   .captured = engine::Clock::now(),
                   .has_target = next_.target || is_own_target};
    next_ = {};
  }

 private:
  moodycamel::BlockingReaderWriterCircularBuffer<Given> waiting_;
  std::atomic<bool> stopping_{false};
  Given next_;
  bool over_ = false;
  std::int64_t taken_ = 0;
};

/// Predictions on their way to the caller, in a ring that has room for all under way. Written by
/// the last stage's worker, read by the caller.
class Results final : public engine::Observer {
 public:
  struct Entry {
    std::int64_t index = -1;  ///< -1: the run is over
    float loss = 0;
    double latency_ms = 0;
  };

  /// `elements`: numbers in a prediction.
  Results(std::size_t elements, std::size_t places)
      : predictions_(places, std::vector<float>(elements)), entries_(places + 1) {}

  void predicted(engine::Sample& sample, float loss) override {
    const engine::SampleInfo& info = sample.info;
    const std::chrono::duration<double, std::milli> latency = info.predicted - info.captured;
    std::ranges::copy(sample.prediction(), place(info.frame).begin());
    entries_.wait_enqueue({info.frame, loss, latency.count()});
  }
  void close() { entries_.wait_enqueue({}); }

  bool take(Entry& entry, std::chrono::milliseconds patience) {
    return entries_.wait_dequeue_timed(entry, patience);
  }
  std::vector<float>& place(std::int64_t index) {
    return predictions_[std::size_t(index) % predictions_.size()];
  }
  std::size_t places() const { return predictions_.size(); }

 private:
  std::vector<std::vector<float>> predictions_;
  moodycamel::BlockingReaderWriterCircularBuffer<Entry> entries_;
};

}  // namespace millrace::app
