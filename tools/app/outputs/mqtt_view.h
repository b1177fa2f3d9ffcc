// A run at an MQTT broker, for Home Assistant and others: its state, and what they ask of it.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "tools/app/alerts/alerts.h"
#include "tools/app/config/config.h"
#include "tools/page/controls.h"
#include "tools/page/live_state.h"

namespace millrace::app {

/// At the broker that [mqtt] names. Publishes, retained: PREFIX/availability, "online" or
/// "offline"; PREFIX/state, once a second, what the page has at /state; PREFIX/event, the latest
/// snapshot as PNG; and Home Assistant's discovery. Obeys PREFIX/control as the page obeys
/// /control, and single words: PREFIX/control/pause, PREFIX/control/label "night". On a thread of
/// its own, which a broker that is away does not end.
class MqttView {
 public:
  /// All outlives the view; `look` may be called by any thread. `alerts`: who takes pictures of
  /// events; null: nobody.
  MqttView(const Config& config, std::function<page::Snapshot()> look, const Alerts* alerts,
           page::Controls& controls);
  /// Says that it is offline: a second at most.
  ~MqttView();

  /// What people should be told, once: connected, away, a message that can't be obeyed. Any thread.
  std::string take_note();

 private:
  void run();
  void note(const std::string& line);

  const Config& config_;
  const std::function<page::Snapshot()> look_;
  const Alerts* const alerts_;
  page::Controls& controls_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::string note_;
  std::thread thread_;  // last: starts when all else stands
};

}  // namespace millrace::app
