#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "engine/format.h"
#include "engine/pipeline/loss_guard.h"

namespace millrace::app {

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
    return engine::format(
               "guard: at frame %ld the loss was %.4g (median %.4g), not explained by the scene: "
               "rolled back to the last good weights at a lower rate",
               guard.last_frame, guard.last_loss, guard.last_median) +
           (since > 1 ? "; " + std::to_string(since) + " roll-backs since the last such line" : "");
  }

 private:
  std::int64_t told_ = 0;
  std::chrono::steady_clock::time_point told_at_;
};

}  // namespace millrace::app
