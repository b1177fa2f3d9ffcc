// Lets go of sources that may hang while they are destroyed: a driver, a dead file server.
#pragma once

#include <chrono>  // how long it may take
#include <memory>  // the source

#include "io/source/source.h"

namespace millrace::io {

/// Thread-bound; what it left behind outlives it.
class Teardown {
 public:
  Teardown();
  /// Destroys `source` in a thread of its own and waits at most `limit`; false: it is still at it
  /// and is left to itself.
  bool destroy(std::unique_ptr<Source> source, std::chrono::milliseconds limit);
  /// Sources left behind that are not gone yet.
  int pending() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace millrace::io
