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
#include "engine/schedule/lowering.h"

namespace millrace::engine {

/// While it lives, a pipeline that runs with its `options` must begin an action every now and then.
/// When none has begun for `limit`, which no healthy run takes, or they have no end, it says what
/// each worker waits for and ends the program: workers that wait for one another can't be told to
/// stop.
class StallWatch {
 public:
  StallWatch(const Schedule& schedule, PipelineOptions& options,
             std::chrono::seconds limit = std::chrono::seconds(30))
      : schedule_(schedule), limit_(limit), latest_(schedule.workers.size()) {
    options.before_action = [this, first = std::move(options.before_action)](int worker,
                                                                             const Action& a) {
      // Relaxed, so that it orders nothing: ThreadSanitizer is to see workers as they are.
      latest_[std::size_t(worker)].action.store(pack(a), std::memory_order_relaxed);
      begun_.fetch_add(1, std::memory_order_relaxed);
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
  /// Operation, stage, gradient's and own sample, of which a test has few.
  static std::uint64_t pack(const Action& a) {
    return std::uint64_t(a.op) << 56 | std::uint64_t(a.stage & 0xff) << 48 |
           std::uint64_t(a.gradient & 0xffffff) << 24 | std::uint64_t(a.sample & 0xffffff);
  }
  static Action unpack(std::uint64_t bits) {
    return {Op(bits >> 56), int(bits >> 48 & 0xff), std::int64_t(bits & 0xffffff),
            std::int64_t(bits >> 24 & 0xffffff)};
  }

  void watch() {
    std::unique_lock lock(mutex_);
    std::int64_t seen = -1;
    for (std::chrono::seconds still(0); still < limit_ && seen < kEndless;) {
      if (ended_.wait_for(lock, std::chrono::seconds(1), [this] { return over_; })) return;
      const std::int64_t begun = begun_.load(std::memory_order_relaxed);
      still = begun == std::exchange(seen, begun) ? still + std::chrono::seconds(1)
                                                  : std::chrono::seconds(0);
    }
    std::fprintf(stderr, "%s %s; %lld actions have begun\n", schedule_.name.c_str(),
                 seen < kEndless ? "hangs" : "has no end", static_cast<long long>(seen));
    for (std::size_t worker = 0; worker < latest_.size(); ++worker) tell(int(worker));
    std::_Exit(EXIT_FAILURE);
  }

  void tell(int worker) const {
    static constexpr const char* kKinds[] = {"admission", "activation", "prediction",
                                             "gradient",  "meeting",    "release"};
    const std::uint64_t bits = latest_[std::size_t(worker)].action.load(std::memory_order_relaxed);
    if (bits == kNone) {
      std::fprintf(stderr, "  worker %d: before its first action\n", worker);
      return;
    }
    const Action action = unpack(bits);
    std::fprintf(stderr, "  worker %d: in %s, which needs", worker,
                 action_text(action, true).c_str());
    const Lowered lowered = Lowering(schedule_)(worker, action);
    for (const Signal& need : lowered.needs)
      std::fprintf(stderr, " [%s of sample %lld by stage %d]", kKinds[int(need.kind)],
                   static_cast<long long>(need.sample), need.stage);
    std::fprintf(stderr, "%s\n", lowered.needs.begin() == lowered.needs.end() ? " nothing" : "");
  }

  static constexpr std::int64_t kEndless = 10'000'000;  ///< more actions than a test has
  static constexpr std::uint64_t kNone = ~std::uint64_t(0);
  struct alignas(64) Latest {
    std::atomic<std::uint64_t> action{kNone};
  };

  const Schedule& schedule_;
  const std::chrono::seconds limit_;
  std::vector<Latest> latest_;  ///< by worker
  std::atomic<std::int64_t> begun_{0};
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;  ///< under mutex_
  std::thread thread_;
};

}  // namespace millrace::engine
