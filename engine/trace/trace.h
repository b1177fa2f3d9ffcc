#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/schedule/schedule.h"

namespace millrace::engine {

/// A piece of a worker's time, on a clock that all workers share.
struct Span {
  int worker = 0;
  Action action;
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  bool waiting = false;             ///< the wait before the action
  std::int64_t version = -1;        ///< updates that its weights have seen; -1: as in `action`
  const char* operation = nullptr;  ///< within the action; null: the whole action
};

struct Counts {
  std::int64_t at_ns = 0;
  std::int64_t waiting = 0;  ///< frames in the queue
  std::int64_t dropped = 0;  ///< since the start
  double latency_ms = 0;     ///< of the newest prediction, from capture
};

/// The Trace Event Format of chrome://tracing and ui.perfetto.dev: one process called `name`, a
/// thread per worker, named as in `workers` (default: "worker W"). A span is a "complete" event (ph
/// X; microseconds, to the nanosecond) named by its kind: F, B, U, ... as in action_text(), "wait",
/// or the operation. Arguments: stage, frame, gradient, version. `counts` become counters (ph C).
/// `name` and `workers` may hold any bytes.
std::string trace_json(const std::string& name, const std::vector<std::string>& workers,
                       const std::vector<Span>& spans, const std::vector<Counts>& counts = {});

}  // namespace millrace::engine
