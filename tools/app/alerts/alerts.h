#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "io/queue/frame_queue.h"
#include "tools/app/events/event.h"

namespace millrace::app {

class ClipRecorder;

struct Alert {
  NoveltyEvent event;
  double loss = 0;       ///< may not be finite
  std::string snapshot;  ///< path of the picture; "": none
  std::string clip;      ///< path of the video, complete some time after the event; "": none
};

/// float32 [channels][height][width] in 0..1, or null.
struct EventPictures {
  const float *frame = nullptr, *usual = nullptr, *difference = nullptr;
};

/// The form used by webhooks, MQTT, reports and files beside snapshots.
nlohmann::ordered_json event_json(const NoveltyEvent& event);
/// One line of JSON, without the credentials of the URI `source`. A non-finite loss is null.
std::string alert_json(const Alert& alert, const std::string& source);

struct AlertOptions {
  std::string snapshots;  ///< folder for pictures; "": none
  std::string webhook;    ///< http://...; "": none
  std::string mqtt;       ///< mqtt://...; "": none
  std::string topic;
  std::string source;  ///< as reported, without credentials
  int channels = 0, height = 0, width = 0;
  /// Before and after an event's first frame; events in a clip prolong it by half; 0: no clip.
  double clip_seconds = 0;
  double fps = 0;                            ///< of clips; 0: 25
  std::chrono::milliseconds patience{5000};  ///< per post; after the run, for all together
  std::size_t keep = 1000;                   ///< snapshots in the folder; older ones are removed
};

/// A bounded queue of alerts, and a thread that writes snapshots and clips and sends the alerts.
/// Drops and counts alerts when the queue is full. Error texts contain no credentials.
class Alerts {
 public:
  static constexpr int kWaiting = 4;  ///< queued alerts, with their pictures

  explicit Alerts(AlertOptions options);
  ~Alerts();

  /// Copies `alert` and its pictures, if any. Waits only for another raise(). Any thread.
  void raise(const Alert& alert, const EventPictures& pictures = {});
  /// Records the frame for clips. Call it before raise() for the same frame.
  void film(const float* frame, const float* prediction, double seconds);
  /// Sends what is queued, for `patience` in all, and stops. One thread.
  void finish();

  // Any thread.
  std::int64_t told() const { return told_.load(std::memory_order_relaxed); }
  std::int64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  std::int64_t failed() const { return failed_.load(std::memory_order_relaxed); }
  std::string last_snapshot() const;
  /// "WHERE: cause" of the latest failure; "" if none.
  std::string last_error() const;

 private:
  struct Slot {
    Alert alert;
    bool pictures = false, films = false;
    bool begins = false;  ///< its clip is a new one
    std::vector<float> frame, usual, difference;
  };

  void run();
  std::chrono::milliseconds patience();
  void tell(Slot& slot);
  void write_snapshot(Slot& slot);
  void lose_clip();  ///< counts the events of a clip that can't be written as failed
  void keep(const std::string& path);  ///< removes the oldest beyond options_.keep
  template <class Act>
  bool attempt(const Act& act);

  const AlertOptions options_;
  std::unique_ptr<ClipRecorder> clips_;  ///< null: none
  std::vector<Slot> slots_;
  io::SlotRing free_{kWaiting}, ready_{kWaiting};
  std::mutex raising_;  ///< two threads may raise: one for pictures, one for a lost camera
  // Used by thread_: snapshots and clips, including earlier runs', and the next clip's path.
  std::deque<std::string> written_;
  std::string clip_path_;
  int filmed_told_ = 0;  ///< the clip's events that were delivered everywhere
  std::chrono::steady_clock::time_point last_end_;
  std::atomic<bool> stop_{false};
  std::atomic<std::int64_t> told_{0}, dropped_{0}, failed_{0};
  mutable std::mutex mutex_;
  std::string last_error_, last_snapshot_;
  std::thread thread_;  // last: uses the members above
};

}  // namespace millrace::app
