// The metrics of a run in Prometheus' text format.
#pragma once

#include <string>

#include "tools/page/live_state.h"

namespace millrace::page {

/// Counters and histograms since the run began, and gauges. Prometheus derives rates itself.
std::string metrics_text(const Snapshot& snapshot, int viewers);

}  // namespace millrace::page
