#pragma once

#include <concurrentqueue/blockingconcurrentqueue.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
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
  /// `capacity`: 1 or more.
  FrameQueue(int capacity, Drop drop)
      : capacity_(capacity),
        drop_(drop),
        frames_(std::size_t(capacity) + 3),
        ready_(capacity + 2),
        free_(capacity + 2) {
    for (int slot = 1; slot <= capacity + 1; ++slot) free_.put(slot);
  }

  Frame& writable() { return frames_[std::size_t(writing_)]; }
  /// Sets the frame's id, publishes it and takes a new slot by the policy. False, with the frame
  /// counted as dropped, after stop() or close().
  bool push() {
    writable().id = accepted_++;
    if (stopped_ != 0 || closed_) {
      ++dropped_;
      return false;
    }
    ready_.put(writing_);
    // A stop() after the check above may have emptied `ready_` before this frame was in it. Both
    // sides use a read-modify-write, so at least one of them sees the other and empties it.
    if (stopped_.fetch_or(0)) drop_waiting();
    const bool more = drop_ == Drop::newest ? take_newest() : wait_for_free();
    if (!more) writing_ = int(frames_.size()) - 1;
    return more;
  }
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
  Frame* pop(std::chrono::microseconds timeout) {
    using std::chrono::microseconds;
    if (held_) throw std::logic_error("frame queue: a frame is still held");
    const auto deadline = Clock::now() + timeout;
    while (!stopped_) {
      const bool last_look = closed_;  // read first, so that no push is missed
      const auto left = std::chrono::duration_cast<microseconds>(deadline - Clock::now());
      const bool wait = !last_look && left > microseconds::zero();
      int slot;
      if (wait ? ready_.take(slot, std::min(left, kSlice)) : ready_.take(slot)) {
        ++popped_;
        held_ = true;
        return &frames_[std::size_t(slot)];
      }
      if (!wait) break;
    }
    return nullptr;
  }
  void release(Frame* frame) {
    held_ = false;
    free_.put(int(frame - frames_.data()));
  }
  /// Counts a frame that it popped, and left out for a newer one, as dropped.
  void skip() { ++skipped_; }
  bool drained() const { return closed_ && waiting() == 0; }
  /// Called by a consumer that wants no more: waiting and later frames count as dropped.
  void stop() {
    stopped_.fetch_or(1);
    drop_waiting();
  }

  // Any thread. Only the numbers of counts() are of one moment and add up.
  FrameCounts counts() const {
    const auto read = [this] {
      FrameCounts now{.popped = popped_, .dropped = dropped_, .rejected = rejected_};
      now.received = accepted_ + now.rejected;
      return now;
    };
    // Counters only grow: between two equal reads they had these values.
    FrameCounts before, now = read();
    do {
      before = now;
      now = read();
    } while (now != before);
    return now;
  }
  std::int64_t received() const { return accepted_ + rejected_; }
  std::int64_t dropped() const { return dropped_ + skipped_; }
  std::int64_t rejected() const { return rejected_; }
  bool drops() const { return drop_ == Drop::newest; }

 private:
  // Sleeping threads check the flags this often, so close() and stop() needn't wake them.
  static constexpr std::chrono::microseconds kSlice = std::chrono::milliseconds(5);

  std::int64_t waiting() const {
    const std::int64_t gone = popped_ + dropped_;
    return accepted_ - gone;
  }
  void drop_waiting() {
    for (int slot; ready_.take(slot);) ++dropped_;
  }
  // The producer's next slot under Drop::newest; false after a stop. Never waits: one of the two
  // queues always has a slot, though the consumer may move it between the two calls.
  bool take_newest() {
    while (!stopped_) {
      if (waiting() <= capacity_ && free_.take(writing_)) return true;
      if (ready_.take(writing_)) {
        ++dropped_;
        return true;
      }
      if (free_.take(writing_)) return true;
    }
    return false;
  }
  // The producer's next slot under Drop::never; false after a stop.
  bool wait_for_free() {
    while (!stopped_) {
      if (free_.take(writing_, kSlice)) return true;
    }
    return false;
  }

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
