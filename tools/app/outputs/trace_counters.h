// What a trace shows beside actions: queue, drops, latency.
#pragma once

#include <chrono>

#include "engine/pipeline/feed.h"
#include "engine/trace/action_log.h"
#include "io/queue/frame_queue.h"

namespace millrace::app {

/// Counts at each prediction. What it looks at and writes to outlives it.
class TraceCounters final : public engine::Observer {
 public:
  TraceCounters(engine::ActionLog& log, const io::FrameQueue& queue) : log_(log), queue_(queue) {}

  void predicted(engine::Sample& sample, float) override {
    const engine::Clock::time_point now = engine::Clock::now();
    const io::FrameCounts frames = queue_.counts();
    log_.count(
        {.waiting = frames.waiting(),
         .dropped = frames.dropped,
         .latency_ms = std::chrono::duration<double, std::milli>(now - sample.info.captured).count()},
        now);
  }

 private:
  engine::ActionLog& log_;
  const io::FrameQueue& queue_;
};

}  // namespace millrace::app
