// What is measured of a run, in Prometheus' text format.
#pragma once

#include <string>  // the text

#include "tools/page/live_state.h"

namespace millrace::page {

/// Counters and histograms since the run began, gauges of now; no rates, which Prometheus derives.
std::string metrics_text(const Snapshot& snapshot, int viewers);

}  // namespace millrace::page
