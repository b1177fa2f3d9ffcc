// A running run in one line.
#pragma once

#include <chrono>  // rates
#include <string>  // the line

#include "engine/monitor/real_time.h"
#include "engine/trainer/trainer.h"
#include "io/queue/frame_queue.h"
#include "tools/app/overload_watch.h"
#include "tools/app/outputs/run_log.h"

namespace millrace::app {

/// Frames a second are those since the line before. The main thread's; what it looks at outlives
/// it.
class StatusLine {
 public:
  StatusLine(engine::Trainer& trainer, const io::FrameQueue& queue, const RunLog& log,
             const OverloadWatch& overload, const engine::RealTime& real_time,
             std::int64_t frames_before)
      : trainer_(trainer),
        queue_(queue),
        log_(log),
        overload_(overload),
        real_time_(real_time),
        before_(frames_before) {}
  std::string text();

 private:
  engine::Trainer& trainer_;
  const io::FrameQueue& queue_;
  const RunLog& log_;
  const OverloadWatch& overload_;
  const engine::RealTime& real_time_;
  const std::int64_t before_;  ///< frames that a checkpoint had learned from
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::int64_t shown_ = 0;
  double shown_at_ = 0;
};

}  // namespace millrace::app
