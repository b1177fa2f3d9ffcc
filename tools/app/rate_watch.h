#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "engine/format.h"
#include "engine/monitor/monitor.h"

namespace millrace::app {

/// Sets the monitor's F to the rate of the time stamps, unless config or source have set it.
/// Thread-bound; the monitor outlives it.
class RateWatch {
 public:
  /// `seen`: frames per second by the time stamps so far; 0: unknown.
  RateWatch(std::function<double()> seen, engine::Monitor& monitor)
      : seen_(std::move(seen)), monitor_(monitor) {}

  /// One line on what changed, or "". Ignores small changes.
  std::string look() {
    constexpr double kChange = 0.1;
    const double set = monitor_.fps();
    if (set > 0 && set != told_) return "";  // set by source or config
    const double now = seen_();
    if (now <= 0 || (set > 0 && std::abs(now - told_) <= kChange * told_)) return "";
    told_ = now;
    monitor_.set_fps(now);
    return engine::format("has no frame rate; using F = %.4g from its time stamps", now);
  }
  bool estimated() const { return told_ > 0 && monitor_.fps() == told_; }

 private:
  const std::function<double()> seen_;
  engine::Monitor& monitor_;
  double told_ = 0;  ///< the last estimate; 0: none
};

}  // namespace millrace::app
