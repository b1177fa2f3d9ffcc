// What is told about frames that the network could not predict.
#pragma once

#include <chrono>   // when
#include <cstdint>  // numbers
#include <string>   // text

namespace millrace::app {

/// The first frame of an event: a run of unexpected frames. A plain value.
struct Alert {
  std::int64_t event = 0;  ///< 1, 2, ... in this run
  std::int64_t frame = 0;  ///< of those trained, as in output.log
  std::int64_t source_frame = 0;
  std::chrono::system_clock::time_point time;
  double loss = 0;       ///< may not be finite
  double deviation = 0;  ///< above the usual
  std::string snapshot;  ///< where the picture lies; "": nowhere
};

/// One JSON object on one line; a loss that is not finite is null. `source`: a URI, told without
/// its credentials.
std::string alert_json(const Alert& alert, const std::string& source);

}  // namespace millrace::app
