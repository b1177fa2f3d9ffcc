#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::page {

/// Requests from viewers, which the run polls. Lock-free.
class Controls {
 public:
  /// What this run supports; anything else is refused.
  struct Offered {
    bool pause = true;
    bool save = true;
    std::function<void(double)> set_learning_rate = {};  ///< thread-safe; empty: fixed
    std::vector<std::string> labels = {};  ///< classes that viewers may assign to a frame
    /// Takes a label as io::LiveLabels does; returns "" or what is wrong. Thread-safe. Empty: none.
    std::function<std::string(std::string_view)> hear_label = {};
  };
  explicit Controls(const Offered& offered) : offered_(offered) {}
  const Offered& offered() const { return offered_; }

  // The server: any thread.
  void pause(bool on) { paused_.store(on, std::memory_order_relaxed); }
  void save() { save_.store(true, std::memory_order_release); }

  // The run: any thread.
  bool paused() const { return paused_.load(std::memory_order_relaxed); }
  /// True once after save(), however often it was called.
  bool take_save() {
    return save_.load(std::memory_order_relaxed) &&
           save_.exchange(false, std::memory_order_acquire);
  }

 private:
  const Offered offered_;
  std::atomic<bool> paused_{false};
  std::atomic<bool> save_{false};
};

}  // namespace millrace::page
