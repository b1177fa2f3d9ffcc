// From the frame queue to the pipeline's samples.
#pragma once

#include <atomic>
#include <cstdint>     // counts
#include <functional>  // pause

#include "engine/pipeline/feed.h"
#include "io/queue/frame_queue.h"
#include "io/queue/resizer.h"
#include "tools/app/config/task.h"

namespace millrace::app {

/// Makes samples of frames. autoencode: the frame is input and target. label: 1 for the frame's
/// class, 0 for the others. mask, stream: the frame's target, behind the input where the network
/// gives that, too. A frame of which no class or target is told has none. next-frame: see
/// NextFrameFeed; teacher: see TeacherFeed. Used by stage 0's worker; pending() when that has
/// stopped.
class FrameFeed : public engine::Feed {
 public:
  /// Queue and resizer outlive this.
  FrameFeed(io::FrameQueue& queue, io::Resizer& resizer, TargetFrom target)
      : queue_(queue), resizer_(resizer), target_from_(target) {}

  /// Asked before each frame is taken: while it says so, none is. Before the run.
  void rest_while(std::function<bool()> paused) { paused_ = std::move(paused); }

  Status poll(std::chrono::microseconds patience) override;
  void take(engine::Sample& sample) override;

  /// Whether no frame is to be taken now.
  bool rests() const { return paused_ && paused_() && !queue_.drained(); }

  /// Samples made so far. Any thread.
  std::int64_t taken() const { return taken_.load(std::memory_order_relaxed); }

  /// Frames taken from the queue that no sample was made of.
  virtual std::int64_t pending() const { return frame_ ? 1 : 0; }

 protected:
  /// The next frame, to be released; null: none came in time, or none will (`ended`).
  io::Frame* pop(std::chrono::microseconds patience, bool& ended);
  /// What is known of the sample that is made of `frame`. Counts it.
  engine::SampleInfo info_of(const io::Frame& frame);
  /// Copies the pixels of `frame`, which has the samples' size, as bytes or as floats.
  static void write_input(const io::Frame& frame, engine::Sample& sample);
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
