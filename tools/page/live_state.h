#pragma once

#include <atomic>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/monitor/real_time.h"

namespace millrace::page {

using Json = nlohmann::ordered_json;

struct Snapshot {
  /// The contents of /state (see assets/openapi.json), without fields that need several snapshots
  /// or the server. URIs may contain credentials, which json.h removes.
  Json state = Json::object();
  engine::FrameCounts frames;
  std::vector<engine::Histogram> busy;  ///< per stage: every step of every replica
  engine::Histogram latency;            ///< capture to prediction
};

/// The number at `path`, such as "/loss/recent": true and text count as 1, false and empty text as
/// 0; NaN: nothing is there.
inline double number_at(const Json& state, const std::string& path) {
  const Json::json_pointer at(path);
  if (!state.contains(at)) return std::numeric_limits<double>::quiet_NaN();
  const Json& value = state[at];
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  if (value.is_boolean()) return value.get<bool>();
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

inline std::string text_at(const Json& state, const std::string& path) {
  return state.value(Json::json_pointer(path), "");
}

/// The largest of the values since the last take(), so that occasional reads miss none. Lock-free.
class Peak {
 public:
  void see(double value) {
    double most = most_.load(std::memory_order_relaxed);
    while (value > most && !most_.compare_exchange_weak(most, value, std::memory_order_relaxed)) {
    }
  }
  double take() { return most_.exchange(0, std::memory_order_relaxed); }

 private:
  std::atomic<double> most_{0};
};

/// Viewers' requests, which the run polls. Lock-free.
class Controls {
 public:
  /// The requests that this run supports; others are refused.
  struct Offered {
    bool pause = true;
    bool save = true;
    std::function<void(double)> set_learning_rate = {};  ///< thread-safe; empty: the rate is fixed
    std::vector<std::string> labels = {};  ///< classes that viewers may assign to a frame
    /// Takes a label in io::LiveLabels' format; returns "" or the fault; any thread; may be empty.
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
