// Samples whose target is another network's output.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "stages/stage.h"
#include "tools/app/config/config.h"
#include "tools/app/feeds/frame_feed.h"

namespace millrace::app {

/// A trained network. Used by one thread at a time.
class Teacher {
 public:
  /// Loads task.teacher: a network from PyTorch (.pt), or weights for the config's own network
  /// (.safetensors). Throws ConfigError if it can't be used, or if it doesn't map `sample` to
  /// `target`.
  Teacher(const Config& config, const stages::ImageShape& sample, const stages::ImageShape& target);
  /// Writes its output for `input`, [C,H,W], to `target`. Throws std::runtime_error if it fails.
  void tell(const float* input, float* target) const;

 private:
  std::string file_;
  stages::ImageShape sample_;
  std::unique_ptr<stages::Stage> network_;
};

/// With late targets, a thread of its own runs the teacher while the stages run forward. Otherwise
/// stage 0's worker runs it first.
class TeacherFeed final : public FrameFeed {
 public:
  /// `slots`: number of samples in flight.
  TeacherFeed(io::FrameQueue& queue, io::Resizer& resizer, Teacher teacher, bool late, int slots);
  ~TeacherFeed() override;

  void take(engine::Sample& sample) override;
  Status target(engine::Sample& sample, std::chrono::microseconds patience) override;
  Status targets_known(std::chrono::microseconds patience) override;

 private:
  void tell(engine::Sample& sample) const;
  void work();
  template <class Known>
  Status wait(std::chrono::microseconds patience, Known known);

  const Teacher teacher_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<engine::Sample*> asked_;  ///< under the lock; the teacher works on the first
  std::vector<bool> unknown_;          ///< by slot, under the lock
  bool over_ = false;                  ///< under the lock
  std::exception_ptr failed_;          ///< under the lock: what the teacher threw
  std::thread thread_;                 ///< last member; only with late targets
};

}  // namespace millrace::app
