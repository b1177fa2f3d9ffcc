// Every frame's fate, while the run goes on.
#pragma once

#include "engine/monitor/real_time.h"
#include "engine/trainer/trainer.h"
#include "io/queue/frame_queue.h"

namespace millrace::tools {

/// So far. Any thread.
inline engine::FrameCounts frame_counts(const io::FrameQueue& queue, engine::Trainer& trainer) {
  const engine::Tally& tally = trainer.monitor().tally();
  const std::int64_t predicted_only = tally.predicted_only.load(std::memory_order_relaxed),
                     untold = tally.untold.load(std::memory_order_relaxed);
  return {.received = queue.received(),
          .trained = trainer.trained(),
          .dropped = queue.dropped() + predicted_only,
          .predicted_only = predicted_only,
          .rejected = queue.rejected() + untold,
          .untold = untold,
          .replayed = tally.replayed.load(std::memory_order_relaxed)};
}

}  // namespace millrace::tools
