// What may change often during a run, and is told to users at most once a minute.
#pragma once

#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "engine/format.h"
#include "engine/monitor/monitor.h"
#include "engine/pipeline/loss_guard.h"

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

/// Thread-bound.
class RollBackWatch {
 public:
  /// One line on the roll-backs since the last line, or "". `all`: without waiting for a minute.
  std::string look(const engine::LossGuard::Status& guard, bool all,
                   std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now()) {
    constexpr std::chrono::minutes kApart{1};
    const bool soon = told_ > 0 && now - told_at_ < kApart;
    if (guard.roll_backs == told_ || (soon && !all)) return "";
    const std::int64_t since = guard.roll_backs - std::exchange(told_, guard.roll_backs);
    told_at_ = now;
    const std::string loss = std::isfinite(guard.last_loss)
                                 ? engine::format("%.4g", guard.last_loss)
                                 : std::string("not finite");
    return engine::format(
               "guard: at frame %ld the loss was %s (median %.4g), not explained by the scene: "
               "rolled back to the last good weights at a lower rate",
               guard.last_frame, loss.c_str(), guard.last_median) +
           (since > 1 ? "; " + std::to_string(since) + " roll-backs since the last such line" : "");
  }

 private:
  std::int64_t told_ = 0;
  std::chrono::steady_clock::time_point told_at_;
};

}  // namespace millrace::app
