// F for a stream that names no rate: the reader's estimate, told to the monitor.
#pragma once

#include <string>  // lines

#include "engine/monitor/monitor.h"
#include "io/queue/reader.h"

namespace millrace::app {

/// Sets the monitor's F to what time stamps show as long as nobody else has set it. Thread-bound;
/// both outlive it.
class RateWatch {
 public:
  RateWatch(const io::Reader& reader, engine::Monitor& monitor)
      : reader_(reader), monitor_(monitor) {}

  /// What has changed, in a line; "" if nothing has. Small changes are passed over.
  std::string look();
  /// Whether the monitor's F is an estimate.
  bool estimated() const { return told_ > 0 && monitor_.fps() == told_; }

 private:
  const io::Reader& reader_;
  engine::Monitor& monitor_;
  double told_ = 0;  ///< F as it was estimated; 0: not yet
};

}  // namespace millrace::app
