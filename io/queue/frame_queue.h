// The bounded queue between the thread that reads frames and the pipeline, with its drop policy
// and the exact account of every frame.
#pragma once

#include <chrono>   // pop time-outs
#include <cstdint>  // counts
#include <memory>   // hides the lock-free queues from includers

#include "io/source/frame.h"

namespace millrace::io {

enum class Drop {
  newest,  ///< a full queue lets go of its oldest frame and keeps the newest; the loss is counted
  never,   ///< a full queue blocks the reader
};

/// Where every frame went, all four read as of one moment.
struct FrameCounts {
  std::int64_t received = 0;
  std::int64_t popped = 0;
  std::int64_t dropped = 0;
  std::int64_t rejected = 0;

  std::int64_t waiting() const { return received - popped - dropped - rejected; }
};

/// Fixed slots, two lock-free queues of slot numbers (ready, free). The slot count bounds the
/// queue: `capacity` frames wait, one is being written, up to `held` are with the consumer (under
/// `never`, slots that the consumer could hold but does not may hold waiting frames as well).
/// One producer thread, one consumer thread; counters and close() and stop() from any thread.
class FrameQueue {
 public:
  FrameQueue(int capacity, Drop drop, int held = 1);
  ~FrameQueue();
  FrameQueue(const FrameQueue&) = delete;
  FrameQueue& operator=(const FrameQueue&) = delete;

  // Producer.
  /// The slot to write the next frame into; the producer's until push().
  Frame& writable();
  /// Publishes the written frame (its id is set here) and takes a new slot to write, by the policy.
  /// False once the consumer has stopped or the queue is closed: the frame is counted as dropped.
  bool push();
  /// Counts a frame that arrived but could not be used.
  void reject();
  /// No frame follows; pop() returns what still waits, then null with drained() true.
  void close();

  // Consumer.
  /// The oldest waiting frame, or null after `timeout`; null at once when drained or stopped. The
  /// consumer's until release(). Throws std::logic_error beyond `held` unreleased frames.
  Frame* pop(std::chrono::microseconds timeout);
  void release(Frame* frame);
  /// Closed by the producer and nothing is left to pop.
  bool drained() const;
  /// The consumer wants no more: frames still waiting, and any that arrive later, count as dropped.
  void stop();

  // Anyone. received() = popped() + dropped() + rejected() + waiting, at every moment; since four
  // calls are four moments, counts() is there for whoever needs them to add up.
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
