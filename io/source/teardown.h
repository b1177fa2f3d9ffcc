// Destroys sources that may hang on a driver or a dead file server.
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
  /// Destroys `source` in its own thread and waits at most `limit`. False if that is too short; the
  /// thread is then abandoned and may outlive this object.
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
  /// Sources still being destroyed.
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
