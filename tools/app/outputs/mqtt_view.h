// A run at an MQTT broker, for Home Assistant and others: its state, and what they ask of it.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "tools/page/controls.h"
#include "tools/page/live_state.h"

namespace millrace::app {

struct MqttViewOptions {
  std::string broker;            ///< mqtt://[USER:PASSWORD@]HOST[:PORT]
  std::string prefix;            ///< of all topics
  std::string discovery_prefix;  ///< Home Assistant's; "": it is told of nothing
};

/// Publishes, retained: PREFIX/availability, "online" or "offline"; PREFIX/state, once a second,
/// what the page has at /state; PREFIX/event, the latest snapshot as PNG; and Home Assistant's
/// discovery. Obeys PREFIX/control as the page obeys /control, and single words:
/// PREFIX/control/pause, PREFIX/control/label "night". On a thread of its own, which a broker that
/// is away does not end.
class MqttView {
 public:
  /// What it shows. All outlives the view and may be called by any thread.
  struct Subject {
    std::function<page::Snapshot()> look;
    std::function<std::string()> snapshot;  ///< path of the latest event's picture; "": none yet
    bool snapshots = false;                 ///< there will be some
    page::Controls& controls;
  };
  MqttView(const MqttViewOptions& options, Subject subject);
  /// Says that it is offline: a second at most.
  ~MqttView();

  /// What people should be told, once: connected, away, a message that can't be obeyed. Any thread.
  std::string take_note();

 private:
  void run(const MqttViewOptions& options);
  void note(const std::string& line);

  const Subject subject_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::string note_;
  std::thread thread_;  // last: starts when all else stands
};

}  // namespace millrace::app
