// How a run has gone so far.
#pragma once

#include <atomic>
#include <string>

#include "engine/monitor/clock.h"
#include "engine/monitor/real_time.h"

namespace millrace::app {

struct Progress {
  std::atomic<bool> stopping{false};       ///< no further frame is wanted; any thread
  engine::Clock::time_point began, ended;  ///< learning
  engine::FrameCounts frames;              ///< once it has ended
  std::string source_error;                ///< why the stream broke off; "": it did not
  std::string alert_error;                 ///< the latest that was told
};

}  // namespace millrace::app
