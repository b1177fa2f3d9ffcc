// Fails by name what would otherwise hang until ctest's limit.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/pipeline/pipeline.h"

namespace millrace::engine {

/// While it lives, a pipeline that runs with its `options` must begin an action every now and then.
/// When none has begun for `limit`, which no healthy run takes, or they have no end, it says how
/// many each worker has begun and ends the program: workers that wait for one another can't be told
/// to stop.
class StallWatch {
 public:
  StallWatch(const Schedule& schedule, PipelineOptions& options,
             std::chrono::seconds limit = std::chrono::seconds(30))
      : name_(schedule.name), limit_(limit), begun_(schedule.workers.size()) {
    options.before_action = [this, first = std::move(options.before_action)](int worker,
                                                                             const Action& a) {
      // Relaxed, so that it orders nothing: ThreadSanitizer is to see workers as they are.
      begun_[std::size_t(worker)].actions.fetch_add(1, std::memory_order_relaxed);
      if (first) first(worker, a);
    };
    thread_ = std::thread([this] { watch(); });
  }
  ~StallWatch() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

 private:
  static constexpr std::int64_t kEndless = 10'000'000;  ///< more actions than a test has

  void watch() {
    std::unique_lock lock(mutex_);
    std::int64_t seen = -1;
    for (std::chrono::seconds still(0); still < limit_ && seen < kEndless;) {
      if (ended_.wait_for(lock, std::chrono::seconds(1), [this] { return over_; })) return;
      std::int64_t all = 0;
      for (const Begun& one : begun_) all += one.actions.load(std::memory_order_relaxed);
      still = all == std::exchange(seen, all) ? still + std::chrono::seconds(1)
                                              : std::chrono::seconds(0);
    }
    std::fprintf(stderr, "%s %s; actions begun by each worker:", name_.c_str(),
                 seen < kEndless ? "hangs" : "has no end");
    for (const Begun& one : begun_)
      std::fprintf(stderr, " %lld", static_cast<long long>(one.actions.load()));
    std::_Exit(EXIT_FAILURE);
  }

  struct alignas(64) Begun {
    std::atomic<std::int64_t> actions{0};
  };

  const std::string name_;
  const std::chrono::seconds limit_;
  std::vector<Begun> begun_;  ///< by worker
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;  ///< under mutex_
  std::thread thread_;
};

}  // namespace millrace::engine
