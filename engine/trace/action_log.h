#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "capture/ranges.h"
#include "engine/monitor/clock.h"
#include "engine/trace/trace.h"

namespace millrace::engine {

/// One worker's latest spans, in preallocated memory. Written by its worker alone, without
/// allocation or lock; read when the worker has stopped.
class alignas(64) ActionTrack final : public capture::OperationWatch {
 public:
  /// `capacity` > 0. Times are nanoseconds since `origin`.
  ActionTrack(int worker, std::size_t capacity, Clock::time_point origin)
      : worker_(worker), origin_(origin), ring_(capacity) {}

  void begin(const Action& action, Clock::time_point now) {
    action_ = action;
    start_ = now;
  }
  /// Records that the current action waited; its own span begins afterwards.
  void waited(Clock::time_point from, Clock::time_point to) {
    if (to - from >= kLeastWait) add(from, to, true, -1);
    start_ = to;
  }
  /// Ends the current action, which used or produced `version`. A skipped action has no end().
  void end(std::int64_t version, Clock::time_point now) { add(start_, now, false, version); }

  /// Records an operation of the current action.
  void ran(const char* name, Clock::time_point from, Clock::time_point to) override {
    add(from, to, false, -1, name);
  }

  std::vector<Span> spans() const {
    const auto kept = std::ptrdiff_t(count_ - lost());
    std::vector<Span> spans(ring_.begin(), ring_.begin() + kept);
    std::ranges::sort(spans, {}, [](const Span& span) {
      return std::pair{span.start_ns, span.end_ns};
    });
    return spans;
  }
  /// How many earlier spans were overwritten.
  std::int64_t lost() const {
    return std::max<std::int64_t>(0, count_ - std::int64_t(ring_.size()));
  }

 private:
  /// Shorter waits are the time to look for a message.
  static constexpr std::chrono::microseconds kLeastWait{1};

  void add(Clock::time_point from, Clock::time_point to, bool waiting, std::int64_t version,
           const char* operation = nullptr) {
    ring_[next_] = {worker_, action_,  ns_of(from - origin_), ns_of(to - origin_), waiting,
                    version, operation};
    next_ = next_ + 1 < ring_.size() ? next_ + 1 : 0;
    ++count_;
  }

  int worker_;
  Clock::time_point origin_;
  Action action_;
  Clock::time_point start_;
  std::vector<Span> ring_;
  std::size_t next_ = 0;
  std::int64_t count_ = 0;
};

/// A track for each worker, and counts. Must outlive the pipeline that writes it.
class ActionLog {
 public:
  /// Spans of all workers, 72 bytes each; counts, 40 bytes each.
  static constexpr std::size_t kCapacity = 1'000'000, kCounts = 200'000;

  /// `operations`: step programs log their operations, too.
  explicit ActionLog(int workers, std::size_t capacity = kCapacity, bool operations = false)
      : operations_(operations), counts_(kCounts) {
    const std::size_t each = std::max<std::size_t>(1, capacity / std::size_t(workers));
    for (int worker = 0; worker < workers; ++worker) tracks_.emplace_back(worker, each, origin_);
  }
  bool operations() const { return operations_; }

  ActionTrack& track(int worker) { return tracks_[std::size_t(worker)]; }
  /// Retains the latest kCounts. Called by the last stage's worker at each prediction.
  void count(Counts counts, Clock::time_point now) {
    counts.at_ns = ns_of(now - origin_);
    counts_[counted_++ % kCounts] = counts;
  }
  /// Oldest first. Call when the pipeline has stopped.
  std::vector<Counts> counts() const {
    if (counted_ <= kCounts) return {counts_.begin(), counts_.begin() + std::ptrdiff_t(counted_)};
    std::vector<Counts> all = counts_;
    std::ranges::rotate(all, all.begin() + std::ptrdiff_t(counted_ % kCounts));
    return all;
  }
  /// Worker by worker. Call when the pipeline has stopped.
  std::vector<Span> spans() const {
    std::vector<Span> all;
    for (const ActionTrack& track : tracks_)
      std::ranges::copy(track.spans(), std::back_inserter(all));
    return all;
  }
  std::int64_t lost() const {
    std::int64_t lost = 0;
    for (const ActionTrack& track : tracks_) lost += track.lost();
    return lost;
  }

 private:
  const Clock::time_point origin_ = Clock::now();
  const bool operations_;
  std::vector<ActionTrack> tracks_;
  std::vector<Counts> counts_;
  std::size_t counted_ = 0;
};

/// The title says if events were lost.
inline std::string trace_json(const ActionLog& actions, const Schedule& schedule) {
  const std::int64_t lost = actions.lost();
  const std::string title =
      schedule.name + (lost > 0 ? ", without its first " + std::to_string(lost) + " events" : "");
  return trace_json(title, worker_names(schedule), actions.spans(), actions.counts());
}

}  // namespace millrace::engine
