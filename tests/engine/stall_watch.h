#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "engine/pipeline/pipeline.h"

namespace millrace::engine {

/// Fails by name where a test would otherwise hang until ctest's limit. While it lives, a pipeline
/// that runs with its `options` must begin an action every now and then. When none has begun for
/// half a minute, which no healthy run takes, or they never end, it prints so and ends the program:
/// workers that wait for one another can't be stopped.
class StallWatch {
 public:
  StallWatch(const Schedule& schedule, PipelineOptions& options)
      : name_(schedule.name), thread_([this](std::stop_token over) { watch(std::move(over)); }) {
    options.before_action = [this, first = std::move(options.before_action)](int worker,
                                                                             const Action& a) {
      // Relaxed, so that it orders nothing that ThreadSanitizer should find unordered.
      begun_.fetch_add(1, std::memory_order_relaxed);
      if (first) first(worker, a);
    };
  }

 private:
  static constexpr std::int64_t kEndless = 10'000'000;  ///< more actions than a test has

  void watch(std::stop_token over) {
    std::mutex mutex;
    std::condition_variable_any ended;
    std::unique_lock lock(mutex);
    for (std::int64_t seen = -1; begun_ != seen && seen < kEndless;) {
      seen = begun_;
      if (ended.wait_for(lock, over, std::chrono::seconds(30),
                         [&] { return over.stop_requested(); }))
        return;
    }
    std::fprintf(stderr, "%s hangs, or has no end, after %lld actions\n", name_.c_str(),
                 static_cast<long long>(begun_));
    std::_Exit(EXIT_FAILURE);
  }

  const std::string name_;
  std::atomic<std::int64_t> begun_{0};
  std::jthread thread_;  ///< the last, since it reads the others
};

}  // namespace millrace::engine
