// Where people see a run, and what they ask of it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tools/app/feeds/stdin_labels.h"
#include "tools/app/outputs/events.h"
#include "tools/app/outputs/live_view.h"
#include "tools/app/outputs/records.h"
#include "tools/app/outputs/status_line.h"
#include "tools/app/reload.h"

namespace millrace::app {

struct Console {
  /// All outlive this. Throws std::runtime_error if the page can't be served.
  Console(const Request& request, Intake& intake, Learner& learner, Records& records);

  bool paused() const { return page && page->paused(); }
  void tell(const std::string& line) {
    if (on_event) on_event(line);
  }

  std::function<void(const std::string& line)> on_event;
  std::function<void()> on_tick;
  Events events;
  StatusLine status;
  std::unique_ptr<LiveView> page;  ///< null: not served
  StdinLabels stdin_labels;
  Reload reload;
};

}  // namespace millrace::app
