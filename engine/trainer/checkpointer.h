#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/pipeline/loss_guard.h"
#include "stages/parameters.h"

namespace millrace::engine {

/// Checkpoints a pipeline while it runs. Every `every` samples, gathers each stage's state right
/// after it finished that sample: stages reach it at different times, and together the copies are
/// the state of a run stopped there, without the gradients in flight. A writer thread saves them;
/// if it is slower than training, the newest complete snapshot wins. after_sample() is called by
/// each stage's worker for itself.
class Checkpointer {
 public:
  using Write = std::function<void(const stages::StateDict&, std::int64_t samples)>;
  /// Key of a snapshot: whether it was requested, and the sample it is due at.
  using Due = std::pair<bool, std::int64_t>;
  struct Part {
    int stage = 0;
    std::int64_t sample = 0;  ///< the copy was taken after it
    Due due;
    stages::StateDict state;
  };
  /// `copy`: a stage's state, called on its worker. `write`: saves a snapshot taken after so many
  /// samples; may throw. `guard`: a snapshot is written once later losses have proved its weights
  /// good, and dropped if the guard rolls back first; null: written at once.
  Checkpointer(int stages, std::int64_t every, std::function<stages::StateDict(int stage)> copy,
               Write write, const LossGuard* guard = nullptr)
      : stages_(stages),
        every_(every),
        progress_(stages, Progress{.every = every}),
        copy_(std::move(copy)),
        write_(std::move(write)),
        guard_(guard),
        writer_([this] { write_loop(); }) {}
  ~Checkpointer() { finish(); }

  void after_sample(int stage, std::int64_t sample) {
    Part part{.stage = stage, .sample = sample};
    if (!reached(progress_[stage], sample, part.due)) return;
    part.state = copy_(stage);
    pass_on_ ? pass_on_(part) : add(std::move(part));
  }
  /// Sends parts to another process's checkpointer, which add()s them. Call before the run.
  void pass_on(std::function<void(const Part&)> to) { pass_on_ = std::move(to); }
  /// Any thread.
  void add(Part part) {
    const Due due = part.due;
    const std::lock_guard lock(mutex_);
    Snapshot& snapshot = gathering_[due];
    snapshot.parts[part.stage] = std::move(part.state);
    snapshot.samples = std::max(snapshot.samples, part.sample + 1);
    if (int(snapshot.parts.size()) < stages_) return;
    if (guard_) snapshot.guard = guard_->status();
    whole_ = std::move(snapshot);
    // Earlier incomplete snapshots of this kind never complete: set_every() came between stages.
    gathering_.erase(gathering_.lower_bound({due.first, 0}), std::next(gathering_.find(due)));
    changed_.notify_one();
  }
  /// Requests a snapshot of the first samples from `sample` on. Any thread.
  void ask(std::int64_t sample) { asked_.store(sample, std::memory_order_relaxed); }
  /// Samples between regular snapshots; 0: none. Any thread.
  void set_every(std::int64_t every) { every_.store(every, std::memory_order_relaxed); }
  /// The last arguments of ask() and set_every(). Any thread.
  std::int64_t asked() const { return asked_.load(std::memory_order_relaxed); }
  std::int64_t every() const { return every_.load(std::memory_order_relaxed); }
  /// Snapshots written, and failed. Any thread.
  std::int64_t written() const { return written_.load(std::memory_order_relaxed); }
  std::int64_t failed() const { return failed_.load(std::memory_order_relaxed); }
  /// Why the latest snapshot failed; "" if it was written. Any thread.
  std::string error() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }
  /// Writes the complete snapshot if it is proved good, then ends the writer.
  void finish() {
    {
      const std::lock_guard lock(mutex_);
      finished_ = true;
      changed_.notify_one();
    }
    if (writer_.joinable()) writer_.join();
  }

 private:
  struct Snapshot {
    std::map<int, stages::StateDict> parts;
    std::int64_t samples = 0;
    LossGuard::Status guard;  ///< at completion
  };
  /// A stage's progress; used by its worker alone.
  struct Progress {
    std::int64_t every = 0;      ///< as last seen
    std::int64_t due = 0;        ///< the last regular one it reached
    std::int64_t answered = -1;  ///< the last ask()
  };
  bool reached(Progress& progress, std::int64_t sample, Due& due) const {
    // Updates may cover several samples: the first that reaches a multiple counts for it.
    const std::int64_t every = every_.load(std::memory_order_relaxed);
    const std::int64_t multiple = every > 0 ? (sample + 1) / every * every : 0;
    const bool regular = multiple != progress.due && every == progress.every;
    progress.due = multiple;
    progress.every = every;  // a new interval counts from here
    due = {false, multiple};
    if (regular) return true;
    const std::int64_t asked = asked_.load(std::memory_order_relaxed);
    if (sample < asked || progress.answered == asked) return false;
    progress.answered = asked;
    due = {true, asked};
    return true;
  }
  void write_loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return finished_ || !whole_.parts.empty(); });
      if (whole_.parts.empty()) return;
      const Snapshot snapshot = std::exchange(whole_, {});
      if (!proved(snapshot, lock)) continue;
      lock.unlock();
      std::string error;
      try {
        stages::StateDict all;
        for (const auto& [stage, part] : snapshot.parts)
          all.insert(all.end(), part.begin(), part.end());
        write_(all, snapshot.samples);
        written_.fetch_add(1, std::memory_order_relaxed);
      } catch (const std::exception& failure) {
        error = failure.what();
        failed_.fetch_add(1, std::memory_order_relaxed);
      }
      lock.lock();
      error_ = error;
    }
  }
  /// Waits until later losses have proved or disproved the weights.
  bool proved(const Snapshot& snapshot, std::unique_lock<std::mutex>& lock) {
    while (guard_ && !guard_->proved(snapshot.guard)) {
      if (finished_ || guard_->disproved(snapshot.guard)) return false;
      changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
    return true;
  }

  const int stages_;
  std::atomic<std::int64_t> every_;
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> asked_{kNever}, written_{0}, failed_{0};
  std::vector<Progress> progress_;  ///< [stage]
  const std::function<stages::StateDict(int)> copy_;
  const Write write_;
  const LossGuard* const guard_;
  std::function<void(const Part&)> pass_on_;  ///< empty: gathered here
  mutable std::mutex mutex_;                  ///< guards everything below
  std::condition_variable changed_;
  std::map<Due, Snapshot> gathering_;
  Snapshot whole_;  ///< waits to be written; may be empty
  bool finished_ = false;
  std::string error_;
  std::thread writer_;
};

}  // namespace millrace::engine
