// Destroys sources that may hang meanwhile: a driver, a dead file server.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "io/source/source.h"

namespace millrace::io {

/// Thread-bound.
class Teardown {
 public:
  /// Destroys `source` in a thread of its own and waits at most `limit`. False if that is not
  /// enough; the thread then goes on alone, beyond the life of this object.
  bool destroy(std::unique_ptr<Source> source, std::chrono::milliseconds limit) {
    if (!source) return true;
    std::promise<void> promise;
    std::future<void> gone = promise.get_future();
    std::thread([promise = std::move(promise), source = std::move(source)]() mutable {
      source.reset();
      promise.set_value();
    }).detach();
    if (gone.wait_for(limit) == std::future_status::ready) return true;
    left_.push_back(std::move(gone));
    return false;
  }
  /// Sources that are still being destroyed.
  int pending() {
    using std::chrono::seconds;
    std::erase_if(left_,
                  [](auto& one) { return one.wait_for(seconds(0)) == std::future_status::ready; });
    return int(left_.size());
  }

 private:
  std::vector<std::future<void>> left_;
};

}  // namespace millrace::io
