// From the frame queue to the pipeline's samples.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "engine/pipeline/feed.h"
#include "io/queue/frame_queue.h"
#include "io/queue/resizer.h"
#include "tools/app/config/task.h"

namespace millrace::app {

/// Makes samples of frames. Targets by task: autoencode: the frame itself; label: 1 for the frame's
/// class, 0 for the others; mask, stream: the frame's target, after the input with task.with_input;
/// next-frame: see NextFrameFeed; teacher: see TeacherFeed. Frames without a class or target make
/// samples without a target. Used by stage 0's worker; pending() once that has stopped.
class FrameFeed : public engine::Feed {
 public:
  /// Queue and resizer outlive it.
  FrameFeed(io::FrameQueue& queue, io::Resizer& resizer, TargetFrom target)
      : queue_(queue), resizer_(resizer), target_from_(target) {}

  /// Takes no frame while paused(). Call it before the run.
  void rest_while(std::function<bool()> paused) { paused_ = std::move(paused); }

  Status poll(std::chrono::microseconds patience) override;
  void take(engine::Sample& sample) override;

  /// Whether it is paused. It drains even then.
  bool rests() const { return paused_ && paused_() && !queue_.drained(); }

  /// Samples made so far. Any thread.
  std::int64_t taken() const { return taken_.load(std::memory_order_relaxed); }

  /// Frames popped from the queue that became no sample.
  virtual std::int64_t pending() const { return frame_ ? 1 : 0; }

 protected:
  /// The next frame, to be released; null: none came in time, or the stream has `ended`.
  io::Frame* pop(std::chrono::microseconds patience, bool& ended);
  /// The info of the sample made from `frame`. Counts it.
  engine::SampleInfo info_of(const io::Frame& frame);
  /// Copies the pixels of `frame`, which has the samples' size, as the slot takes them: bytes or
  /// floats.
  static void write_input(const io::Frame& frame, engine::Sample& sample);
  /// The same as frame `place` of the `context` in a sample.
  static void write_input(const io::Frame& frame, engine::Sample& sample, int place, int context);
  static void write_target(const io::Frame& frame, engine::Sample& sample);

  io::FrameQueue& queue_;
  io::Resizer& resizer_;

 private:
  const TargetFrom target_from_;
  std::atomic<std::int64_t> taken_{0};
  std::function<bool()> paused_;  ///< empty: never
  io::Frame* frame_ = nullptr;    ///< popped, not yet taken
};

}  // namespace millrace::app
