// Frames with labels or targets from elsewhere: a file, a folder, another stream, people.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "io/source/source.h"

namespace millrace::io {

/// Gives frames labels or targets. Used by one thread at a time.
struct Teller {
  /// Sets `frame`'s label or target. `number` counts from 0, undecodable frames included; `since`
  /// is the time since the first frame. A std::runtime_error ends the stream.
  std::function<void(Frame& frame, std::int64_t number, std::chrono::nanoseconds since)> tell;
  int classes = 0;  ///< of its labels; 0: no labels
  /// Restarts at the first frame; false if it can't.
  std::function<bool()> rewind = [] { return true; };
};

/// `source` with labels or targets by `teller`. A rewind restarts at number 0.
std::unique_ptr<Source> with_teller(std::unique_ptr<Source> source, Teller teller);

}  // namespace millrace::io
