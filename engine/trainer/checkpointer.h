#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
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
               Write write, const LossGuard* guard = nullptr);
  ~Checkpointer();

  void after_sample(int stage, std::int64_t sample);
  /// Sends parts to another process's checkpointer, which add()s them. Call before the run.
  void pass_on(std::function<void(const Part&)> to) { pass_on_ = std::move(to); }
  /// Any thread.
  void add(Part part);
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
  std::string error() const;
  /// Writes the complete snapshot if it is proved good, then ends the writer.
  void finish();

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
  bool reached(Progress& progress, std::int64_t sample, Due& due) const;
  void write_loop();
  bool proved(const Snapshot& snapshot, std::unique_lock<std::mutex>& lock);  ///< waits

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
