// Feeds of so many frames.
#pragma once

#include "engine/pipeline/pipeline.h"

namespace millrace::engine {

/// Frames from `begin` to before `end`, which hold nothing but what a class of one's own fills in.
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

 private:
  std::int64_t next_;
  const std::int64_t end_;
};

}  // namespace millrace::engine
