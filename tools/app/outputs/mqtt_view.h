#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "tools/app/alerts/alerts.h"
#include "tools/app/config/config.h"
#include "tools/page/live_state.h"

namespace millrace::app {

/// At the broker in [mqtt], publishes, retained: PREFIX/availability, "online" or "offline";
/// PREFIX/state, once a second, like the page's /state; PREFIX/event, the latest snapshot as PNG;
/// and Home Assistant's discovery. Takes PREFIX/control like the page's /control, and single words:
/// PREFIX/control/pause, PREFIX/control/label "night". Runs on its own thread, which survives the
/// broker's absence.
class MqttView {
 public:
  /// All arguments outlive the view; any thread may call `look`. `alerts` may be null.
  MqttView(const Config& config, std::function<page::Snapshot()> look, const Alerts* alerts,
           page::Controls& controls);
  /// Publishes "offline", within a second.
  ~MqttView();

  /// News for users, reported once: connected, away, a message that can't be executed. Any thread.
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
  std::thread thread_;  // last: uses the members above
};

}  // namespace millrace::app
