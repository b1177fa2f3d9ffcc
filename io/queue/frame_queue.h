// The bounded queue between the reading thread and the pipeline, with its drop policy and exact
// counts of what became of every frame.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "io/source/frame.h"

namespace millrace::io {

enum class Drop {
  newest,  ///< a full queue drops its oldest frame, which is counted
  never,   ///< a full queue blocks the reader
};

/// What became of the frames, all four read as of one moment.
struct FrameCounts {
  std::int64_t received = 0;
  std::int64_t popped = 0;
  std::int64_t dropped = 0;
  std::int64_t rejected = 0;

  std::int64_t waiting() const { return received - popped - dropped - rejected; }
  bool operator==(const FrameCounts&) const = default;
};

/// Fixed slots and two lock-free queues of slot numbers (ready, free). `capacity` frames may wait,
/// one is being written, and up to `held` are with the consumer; under `never`, waiting frames may
/// also use slots that the consumer does not hold. One producer thread, one consumer thread; the
/// counters, close() and stop() are thread-safe.
class FrameQueue {
 public:
  FrameQueue(int capacity, Drop drop, int held = 1);
  ~FrameQueue();
  FrameQueue(const FrameQueue&) = delete;
  FrameQueue& operator=(const FrameQueue&) = delete;

  // Producer.
  /// The slot to write the next frame into; the producer's until push().
  Frame& writable();
  /// Sets the written frame's id, publishes it and takes a new slot by the policy. False once the
  /// consumer has stopped or the queue is closed: the frame is counted as dropped.
  bool push();
  /// Counts a frame that arrived but could not be used.
  void reject();
  /// No frame follows: pop() returns the waiting ones, then null, and drained() is true.
  void close();

  // Consumer.
  /// The oldest waiting frame, or null after `timeout`; null at once when drained or stopped. The
  /// consumer's until release(). Throws std::logic_error beyond `held` unreleased frames.
  Frame* pop(std::chrono::microseconds timeout);
  void release(Frame* frame);
  /// It is closed and empty.
  bool drained() const;
  /// The consumer wants no more: waiting and later frames count as dropped.
  void stop();

  // Any thread. received() = popped() + dropped() + rejected() + waiting at every moment, but four
  // calls are four moments: the numbers of counts() add up.
  FrameCounts counts() const;
  std::int64_t received() const;
  std::int64_t dropped() const;
  std::int64_t rejected() const;
  std::int64_t popped() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace millrace::io
