// Tells the world of unexpected frames, off the hot path.
#pragma once

#include <atomic>  // counts
#include <chrono>  // how long telling may take
#include <deque>   // snapshots
#include <mutex>   // the last error
#include <string>  // where to
#include <thread>  // the teller
#include <vector>  // slots

#include "io/queue/slot_ring.h"
#include "tools/app/alerts/alert.h"

namespace millrace::app {

struct AlertOptions {
  std::string snapshots;  ///< folder for pictures; "": none
  std::string webhook;    ///< http://...; "": none
  std::string mqtt;       ///< mqtt://...; "": none
  std::string topic;
  std::string source;                        ///< told, without credentials
  int channels = 0, height = 0, width = 0;   ///< of pictures
  std::chrono::milliseconds patience{5000};  ///< for each post
  std::size_t keep = 1000;                   ///< snapshots; older ones of this run are removed
};

/// A bounded queue of events and a thread that writes their snapshots and posts them. What finds no
/// room is dropped and counted; what fails is counted and told once. Secrets in URLs are never
/// told.
class Alerts {
 public:
  static constexpr int kWaiting = 4;  ///< events, pictures included

  explicit Alerts(AlertOptions options);
  /// finish().
  ~Alerts();
  Alerts(const Alerts&) = delete;
  Alerts& operator=(const Alerts&) = delete;

  /// Copies `alert` and the pictures, float32 [channels][height][width] in 0..1, and returns;
  /// neither allocates nor waits. One thread. Null pictures: the alert has none.
  void raise(const Alert& alert, const float* input, const float* prediction);
  /// Tells what still waits, for which it has less patience, and no more. One thread.
  void finish();

  // Any thread.
  std::int64_t told() const { return told_.load(std::memory_order_relaxed); }
  std::int64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  std::int64_t failed() const { return failed_.load(std::memory_order_relaxed); }
  /// "WHERE: cause" of the latest failure; "" if none.
  std::string last_error() const;

 private:
  struct Slot {
    Alert alert;
    bool pictures = false;
    std::vector<float> input, prediction;
  };

  void run();
  void tell(Slot& slot);
  void write_snapshot(Slot& slot);
  template <class Act>
  bool attempt(const Act& act);

  const AlertOptions options_;
  std::vector<Slot> slots_;
  io::SlotRing free_{kWaiting}, ready_{kWaiting};
  std::deque<std::string> written_;  // the teller's
  std::atomic<bool> stop_{false};
  std::atomic<std::int64_t> told_{0}, dropped_{0}, failed_{0};
  mutable std::mutex mutex_;
  std::string last_error_;
  std::thread thread_;  // last: starts when all else stands
};

}  // namespace millrace::app
