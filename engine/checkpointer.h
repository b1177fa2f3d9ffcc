// Checkpoints of a pipeline that goes on running.
#pragma once

#include <atomic>              // demands
#include <condition_variable>  // the writer sleeps
#include <cstdint>             // sample numbers
#include <functional>          // what to copy, where to write
#include <limits>              // no demand
#include <map>                 // snapshots under way
#include <mutex>               // one lock, taken once every `every` samples
#include <string>              // error
#include <thread>              // the writer
#include <vector>              // one number a stage

#include "stages/parameters.h"

namespace millrace::engine {

/// Gathers, every `every` samples, each stage's state right after it finished that sample: stages
/// reach it at different times, and together the copies are what a run stopped there would hold,
/// less the gradients in flight. A thread of its own writes; where writing is slower than training
/// the newest whole snapshot wins. after_sample() is called by each stage's worker for itself.
class Checkpointer {
 public:
  /// `copy`: a stage's state, called on its worker. `write`: saves a snapshot; may throw.
  Checkpointer(int stages, std::int64_t every, std::function<stages::StateDict(int stage)> copy,
               std::function<void(const stages::StateDict&)> write);
  ~Checkpointer();

  void after_sample(int stage, std::int64_t sample);
  /// Asks for a snapshot of its own, of the first samples from `sample` on. Any thread.
  void ask(std::int64_t sample) { asked_.store(sample, std::memory_order_relaxed); }
  /// Snapshots written. Any thread.
  std::int64_t written() const { return written_.load(std::memory_order_relaxed); }
  /// Writes what is whole and ends the writer. Returns the first failure to write, or "".
  std::string finish();

 private:
  struct Snapshot {
    std::map<int, stages::StateDict> parts;
  };
  void write_loop();

  const int stages_;
  const std::int64_t every_;
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> asked_{kNever}, written_{0};
  std::vector<std::int64_t> answered_;  ///< by stage, its worker's: the last demand it answered
  std::vector<std::int64_t> numbers_;   ///< by stage, each its worker's: snapshots it took part in
  const std::function<stages::StateDict(int)> copy_;
  const std::function<void(const stages::StateDict&)> write_;
  std::mutex mutex_;  ///< guards all below
  std::condition_variable changed_;
  std::map<std::int64_t, Snapshot> gathering_;
  Snapshot whole_;  ///< waits to be written; empty if none
  bool finished_ = false;
  std::string error_;
  std::thread writer_;
};

}  // namespace millrace::engine
