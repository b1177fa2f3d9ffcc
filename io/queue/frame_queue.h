#pragma once

#include <concurrentqueue/blockingconcurrentqueue.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "io/source/frame.h"

namespace millrace::io {

/// A FIFO of slot numbers; one thread puts, any thread takes. Neither locks nor allocates after
/// construction, and enters the kernel only to sleep or wake a sleeper. The caller must keep at
/// most `entries` numbers in it: moodycamel's queue has no exact bound.
class SlotRing {
 public:
  explicit SlotRing(int entries) : queue_(std::size_t(entries), 1, 0), feeder_(queue_) {}

  void put(int number) { queue_.enqueue(feeder_, number); }
  /// False if empty.
  bool take(int& number) { return queue_.try_dequeue(number); }
  /// False if empty for `timeout`.
  bool take(int& number, std::chrono::microseconds timeout) {
    return queue_.wait_dequeue_timed(number, timeout);
  }

 private:
  moodycamel::BlockingConcurrentQueue<int> queue_;
  moodycamel::ProducerToken feeder_;
};

enum class Drop {
  newest,  ///< a full queue drops and counts its oldest frame
  never,   ///< a full queue blocks the reader
};

/// All counts at one moment.
struct FrameCounts {
  std::int64_t received = 0;
  std::int64_t popped = 0;
  std::int64_t dropped = 0;
  std::int64_t rejected = 0;

  std::int64_t waiting() const { return received - popped - dropped - rejected; }
  bool operator==(const FrameCounts&) const = default;
};

/// Fixed slots and two lock-free queues of slot numbers (ready, free). `capacity` frames may wait,
/// one is being written, and the consumer holds up to one; under `never`, a waiting frame may also
/// use the slot that the consumer doesn't hold. One producer and one consumer thread; counters,
/// close() and stop() are thread-safe.
class FrameQueue {
 public:
  FrameQueue(int capacity, Drop drop);

  Frame& writable() { return frames_[std::size_t(writing_)]; }
  /// Sets the frame's id, publishes it and takes a new slot by the policy. False, with the frame
  /// counted as dropped, after stop() or close().
  bool push();
  /// Counts a frame that arrived but could not be used.
  void reject() { ++rejected_; }
  /// Counts frames that were lost before they came to this queue.
  void lose(std::int64_t dropped, std::int64_t rejected) {
    accepted_ += dropped;
    dropped_ += dropped;
    rejected_ += rejected;
  }
  /// Ends the stream: pop() returns the waiting frames, then null, and drained() is true.
  void close() { closed_ = true; }

  // Consumer.
  /// The oldest waiting frame, the consumer's until release(). Null after `timeout`, or at once
  /// when drained or stopped. Throws std::logic_error while one is held.
  Frame* pop(std::chrono::microseconds timeout);
  void release(Frame* frame);
  /// Counts a frame that it popped, and left out for a newer one, as dropped.
  void skip() { ++skipped_; }
  bool drained() const { return closed_ && waiting() == 0; }
  /// Called by a consumer that wants no more: waiting and later frames count as dropped.
  void stop();

  // Any thread. Only the numbers of counts() are of one moment and add up.
  FrameCounts counts() const;
  std::int64_t received() const { return accepted_ + rejected_; }
  std::int64_t dropped() const { return dropped_ + skipped_; }
  std::int64_t rejected() const { return rejected_; }
  bool drops() const { return drop_ == Drop::newest; }

 private:
  std::int64_t waiting() const;
  void drop_waiting();
  bool take_newest();
  bool wait_for_free();

  const int capacity_;
  const Drop drop_;
  std::vector<Frame> frames_;  ///< the last one absorbs writes after a stop and is never published
  SlotRing ready_;             ///< fed by the producer
  SlotRing free_;              ///< fed by the consumer
  int writing_ = 0;            ///< the producer's slot
  bool held_ = false;          ///< the consumer holds a frame
  // Any thread. `accepted_` is raised before a frame can be popped or dropped, so an observer that
  // reads it last never sees more frames leave than arrive.
  std::atomic<std::int64_t> accepted_{0}, popped_{0}, dropped_{0}, rejected_{0};
  std::atomic<std::int64_t> skipped_{0};  ///< of `popped_`
  std::atomic<bool> closed_{false};
  std::atomic<int> stopped_{0};  ///< std::atomic<bool> has no fetch_or
};

}  // namespace millrace::io
