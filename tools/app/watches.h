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

/// Sets the monitor's F to the stream's rate. Thread-bound; the monitor outlives it.
class RateWatch {
 public:
  explicit RateWatch(engine::Monitor& monitor) : monitor_(monitor) {}

  /// `seen`: frames per second so far; 0: unknown. `by_stamps`: estimated, not the source's word.
  /// Not while users set F. Returns one line on a large change, or "": at most one a minute, since
  /// a rate can go up and down.
  std::string look(double seen, bool by_stamps) {
    constexpr double kLarge = 0.1, kShare = 1.0 / 64;
    if (seen <= 0) return "";
    const double set = monitor_.fps();
    const bool near = set > 0 && std::abs(seen - set) <= kLarge * set;
    told_ = near && by_stamps ? set + kShare * (seen - set) : seen;  // estimates vary
    monitor_.set_fps(told_);
    by_stamps_ = by_stamps;
    named_ = named_ || !by_stamps;
    const auto now = engine::Clock::now();
    if (near || (spoken_ && now - *spoken_ < std::chrono::minutes(1))) return "";
    spoken_ = now;
    if (!by_stamps) return engine::format("has a new frame rate; F = %.4g", seen);
    return (named_ ? "does not keep the frame rate it names" : "has no frame rate") +
           engine::format("; using F = %.4g from its time stamps", seen);
  }
  bool estimated() const { return by_stamps_ && monitor_.fps() == told_; }

 private:
  engine::Monitor& monitor_;
  double told_ = 0;  ///< the last F set here; 0: none
  bool by_stamps_ = false;
  bool named_ = false;  ///< the source has named a rate
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
