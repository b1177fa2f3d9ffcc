// Destroys sources that may hang meanwhile: a driver, a dead file server.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <vector>

#include "io/source/source.h"

namespace millrace::io {

/// Thread-bound.
class Teardown {
 public:
  /// Destroys `source` in a thread of its own and waits at most `limit`. False if that is not
  /// enough; the thread then goes on alone, beyond the life of this object.
  bool destroy(std::unique_ptr<Source> source, std::chrono::milliseconds limit);
  /// Sources that are still being destroyed.
  int pending();

 private:
  std::vector<std::future<void>> left_;
};

}  // namespace millrace::io
