#include "io/queue/frame_queue.h"

#include <algorithm>
#include <stdexcept>

namespace millrace::io {

using std::chrono::microseconds;

// Sleeping threads check the flags this often, so close() and stop() needn't wake them.
constexpr microseconds kSlice = std::chrono::milliseconds(5);

FrameQueue::FrameQueue(int capacity, Drop drop)
    : capacity_(capacity),
      drop_(drop),
      frames_(std::size_t(std::max(0, capacity) + 3)),
      ready_(std::max(0, capacity) + 2),
      free_(std::max(0, capacity) + 2) {
  if (capacity < 1) throw std::invalid_argument("frame queue: no room for a frame");
  for (int slot = 1; slot <= capacity + 1; ++slot) free_.put(slot);
}

std::int64_t FrameQueue::waiting() const {
  const std::int64_t gone = popped_ + dropped_;
  return accepted_ - gone;
}

void FrameQueue::drop_waiting() {
  for (int slot; ready_.take(slot);) ++dropped_;
}

// The producer's next slot under Drop::newest; false after a stop. Never waits: one of the two
// queues always has a slot, though the consumer may move it between the two calls.
bool FrameQueue::take_newest() {
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
bool FrameQueue::wait_for_free() {
  while (!stopped_) {
    if (free_.take(writing_, kSlice)) return true;
  }
  return false;
}

bool FrameQueue::push() {
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

Frame* FrameQueue::pop(microseconds timeout) {
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

void FrameQueue::release(Frame* frame) {
  held_ = false;
  free_.put(int(frame - frames_.data()));
}

void FrameQueue::stop() {
  stopped_.fetch_or(1);
  drop_waiting();
}

FrameCounts FrameQueue::counts() const {
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

}  // namespace millrace::io
