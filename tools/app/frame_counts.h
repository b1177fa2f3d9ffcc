// Every frame's fate, while the run goes on.
#pragma once

#include "engine/monitor/real_time.h"
#include "engine/trainer/trainer.h"
#include "io/queue/frame_queue.h"

namespace millrace::app {

/// So far. Any thread.
inline engine::FrameCounts frame_counts(const io::FrameQueue& queue, engine::Trainer& trainer) {
  const engine::FateCounts fates = trainer.monitor().tally().counts();
  return {.received = queue.received(),
          .trained = fates.trained,
          .dropped = queue.dropped() + fates.predicted_only,
          .predicted_only = fates.predicted_only,
          .rejected = queue.rejected() + fates.untold,
          .untold = fates.untold,
          .replayed = fates.replayed};
}

}  // namespace millrace::app
