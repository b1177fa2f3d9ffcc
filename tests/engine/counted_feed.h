// A feed of so many frames that hold nothing.
#pragma once

#include "engine/pipeline/pipeline.h"

namespace millrace::engine {

class CountedFeed final : public Feed {
 public:
  explicit CountedFeed(std::int64_t samples) : samples_(samples) {}
  Status poll(std::chrono::microseconds) override {
    return next_ < samples_ ? Status::ready : Status::end;
  }
  void take(Sample& sample) override {
    sample.info.frame = next_++;
    sample.info.captured = Clock::now();
  }

 private:
  std::int64_t next_ = 0, samples_;
};

}  // namespace millrace::engine
