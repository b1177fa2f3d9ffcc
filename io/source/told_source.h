// Frames whose target comes from somewhere else: a file, a folder, another stream, people.
#pragma once

#include <chrono>   // stamps
#include <cstdint>  // frame numbers
#include <memory>   // sources

#include "io/source/source.h"

namespace millrace::io {

/// Tells frames' targets. Used by one thread at a time.
class Teller {
 public:
  virtual ~Teller() = default;
  /// Sets `frame`'s label or target. `number`: from 0, with frames that could not be decoded;
  /// `since`: the first frame's stamp. Throws std::runtime_error for what can't be used, which ends
  /// the stream.
  virtual void tell(Frame& frame, std::int64_t number, std::chrono::nanoseconds since) = 0;
  /// Of the labels that it tells; 0: none.
  virtual int classes() const { return 0; }
  /// From the first frame again; false if it can't.
  virtual bool rewind() { return true; }
};

/// `source`, whose frames `teller` tells the targets of. A rewind begins again at number 0.
std::unique_ptr<Source> with_teller(std::unique_ptr<Source> source, std::unique_ptr<Teller> teller);

}  // namespace millrace::io
