// What workers did and when, in the form that chrome://tracing and ui.perfetto.dev open.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/schedule/schedule.h"

namespace millrace::engine {

/// An action from start to end, on any clock that all workers share.
struct Span {
  int worker = 0;
  Action action;
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  bool waiting = false;       ///< no action, but the time before one in which it could not go on
  std::int64_t version = -1;  ///< updates that made the weights it met; -1: as the action says
  const char* operation = nullptr;  ///< of a step program, within the action; null: the action
};

/// How things stand at a moment.
struct Counts {
  std::int64_t at_ns = 0;
  std::int64_t waiting = 0;  ///< frames in the queue
  std::int64_t dropped = 0;  ///< so far
  double latency_ms = 0;     ///< of the newest prediction, from capture
};

/// "stage 0"; "stage 0.1" where stages have replicas, "worker 0" where workers have several stages.
std::vector<std::string> worker_names(const Schedule& schedule);

/// Trace Event Format: one process named `name`, a thread a worker named by `workers` (missing
/// names: "worker W"). A span is a "complete" event (ph X; microseconds, to the nanosecond) named
/// by its kind: F, B, U, ... as in action_text(), or "wait"; its arguments are stage, frame,
/// gradient and version; an operation has its own name. `counts` become counters (ph C). `name` and
/// `workers` may hold any bytes.
std::string trace_json(const std::string& name, const std::vector<std::string>& workers,
                       const std::vector<Span>& spans, const std::vector<Counts>& counts = {});

/// `text` as a JSON string, quotes included. Bytes that are no UTF-8 become U+FFFD.
std::string json_string(const std::string& text);

}  // namespace millrace::engine
