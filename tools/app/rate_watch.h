#pragma once

#include <chrono>
#include <cmath>
#include <optional>
#include <string>

#include "engine/format.h"
#include "engine/monitor/monitor.h"

namespace millrace::app {

/// Sets the monitor's F to the rate of the time stamps, unless config or source have set it.
/// Thread-bound; the monitor outlives it.
class RateWatch {
 public:
  explicit RateWatch(engine::Monitor& monitor) : monitor_(monitor) {}

  /// `seen`: frames per second by the time stamps so far; 0: unknown. Returns one line on the
  /// change, or "": at most one a minute, since a rate can go up and down. Ignores small changes.
  std::string look(double seen) {
    constexpr double kChange = 0.1;
    const double set = monitor_.fps();
    if (set > 0 && set != told_) return "";  // set by source or config
    if (seen <= 0 || (set > 0 && std::abs(seen - told_) <= kChange * told_)) return "";
    told_ = seen;
    monitor_.set_fps(seen);
    const auto now = engine::Clock::now();
    if (spoken_ && now - *spoken_ < std::chrono::minutes(1)) return "";
    spoken_ = now;
    return engine::format("has no frame rate; using F = %.4g from its time stamps", seen);
  }
  bool estimated() const { return told_ > 0 && monitor_.fps() == told_; }

 private:
  engine::Monitor& monitor_;
  double told_ = 0;  ///< the last estimate; 0: none
  std::optional<engine::Clock::time_point> spoken_;
};

}  // namespace millrace::app
