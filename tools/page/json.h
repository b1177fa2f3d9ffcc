// A run's state as text, for the page and for scripts, with credentials removed from URIs.
#pragma once

#include <string>

#include "tools/page/event_store.h"
#include "tools/page/trend.h"

namespace millrace::page {

/// One line of JSON. Non-finite numbers become null. `events`: null if no list of them is served.
std::string state_json(const Live& live, const Controls& controls, int viewers, Json events = {});

/// {"events": [...]}: EventStore::list().
std::string events_json(const EventStore& events);

/// {"columns": [...], "recent": [[...], ...], "whole": [[...], ...]}: the charts' points.
std::string history_json(const Trend& trend);

/// Prometheus' text format: counters and histograms since the run began, and gauges.
std::string metrics_text(const Snapshot& snapshot, int viewers);

/// Whether training is alive, and JSON with the reason.
struct Health {
  bool ok = false;
  std::string text;
};
Health health_json(const Live& live);

/// Executes {"action": "pause" | "resume" | "save"} or {"learning_rate": 0.01}. Returns "", or a
/// one-line error if nothing was done.
std::string obey(const std::string& json, Controls& controls);

}  // namespace millrace::page
