// How long the pipeline takes for a sample, over whole updates.
#pragma once

#include <vector>

#include "engine/monitor/median.h"
#include "engine/pipeline/feed.h"

namespace millrace::bench {

/// Notes when predictions were made.
class Periods final : public engine::Observer {
 public:
  Periods() { at_.reserve(1 << 18); }

  void predicted(engine::Sample&, float) override {
    if (at_.size() < at_.capacity()) at_.push_back(engine::Clock::now());
  }

  /// Median milliseconds a sample, over whole minibatches of `group` samples each: within one that
  /// is flushed the steps differ. The first quarter warms up.
  double period_ms(std::size_t group) const {
    std::vector<double> periods;
    for (std::size_t m = at_.size() / 4 / group * group; m + group < at_.size(); m += group) {
      periods.push_back(std::chrono::duration<double, std::milli>(at_[m + group] - at_[m]).count() /
                        double(group));
    }
    return engine::median(periods);
  }

 private:
  std::vector<engine::Clock::time_point> at_;
};

}  // namespace millrace::bench
