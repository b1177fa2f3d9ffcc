// Frames whose labels or targets come from elsewhere: a file, a folder, another stream, people.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "io/source/source.h"

namespace millrace::io {

/// Gives frames their labels or targets. Used by one thread at a time.
class Teller {
 public:
  virtual ~Teller() = default;
  /// Sets `frame`'s label or target. `number` counts from 0, frames that could not be decoded
  /// included; `since` is the time since the first frame. A std::runtime_error ends the stream.
  virtual void tell(Frame& frame, std::int64_t number, std::chrono::nanoseconds since) = 0;
  /// Number of classes of its labels; 0: it gives no labels.
  virtual int classes() const { return 0; }
  /// Starts again from the first frame; false if it can't.
  virtual bool rewind() { return true; }
};

/// Gives labels by `label`, which is told a frame's number and time as Teller::tell() is.
std::unique_ptr<Teller> label_teller(
    std::function<int(std::int64_t number, std::chrono::nanoseconds since)> label, int classes = 0);

/// `source` with labels or targets by `teller`. A rewind starts again at number 0.
std::unique_ptr<Source> with_teller(std::unique_ptr<Source> source, std::unique_ptr<Teller> teller);

}  // namespace millrace::io
