// What viewers ask of a run.
#pragma once

#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::page {

/// Mailboxes of one item each: a later request replaces an earlier one. Lock-free.
class Controls {
 public:
  /// What this run supports; anything else is refused.
  struct Offered {
    bool pause = true;
    bool save = true;
    bool learning_rate = true;
    std::vector<std::string> labels = {};  ///< classes that people may say a frame is of
    /// Takes a label as io::LiveLabels does: "", or what is wrong. Thread-safe. Empty: none.
    std::function<std::string(std::string_view)> hear_label = {};
  };
  explicit Controls(const Offered& offered) : offered_(offered) {}
  const Offered& offered() const { return offered_; }

  // The server: any thread.
  void pause(bool on) { paused_.store(on, std::memory_order_relaxed); }
  void save() { save_.store(true, std::memory_order_release); }
  void set_learning_rate(double rate) { rate_.store(rate, std::memory_order_relaxed); }

  // The run: any thread.
  /// The run should pause while this is true.
  bool paused() const { return paused_.load(std::memory_order_relaxed); }
  /// True once after save() was called, however often.
  bool take_save() {
    return save_.load(std::memory_order_relaxed) &&
           save_.exchange(false, std::memory_order_acquire);
  }
  /// The latest rate set since the last call.
  std::optional<double> take_learning_rate() {
    if (std::isnan(rate_.load(std::memory_order_relaxed))) return std::nullopt;
    const double rate = rate_.exchange(kNone, std::memory_order_relaxed);
    return std::isnan(rate) ? std::nullopt : std::optional(rate);
  }

 private:
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  const Offered offered_;
  std::atomic<bool> paused_{false};
  std::atomic<bool> save_{false};
  std::atomic<double> rate_{kNone};
};

}  // namespace millrace::page
