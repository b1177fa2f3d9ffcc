#include "io/queue/frame_queue.h"

#include <algorithm>  // std::min
#include <atomic>     // counters and flags
#include <stdexcept>  // misuse
#include <vector>     // the slots

#include "io/queue/slot_ring.h"

namespace millrace::io {
namespace {

using std::chrono::microseconds;

// A sleeping thread looks at the flags this often: close() and stop() need no wake-up of their own.
constexpr microseconds kSlice = std::chrono::milliseconds(5);

void count(std::atomic<std::int64_t>& counter) {
  counter.fetch_add(1);
}

}  // namespace

struct FrameQueue::State {
  State(int capacity, Drop drop, int held)
      : capacity(capacity),
        held_limit(held),
        drop(drop),
        frames(capacity + held + 2),
        ready(capacity + held + 1),
        free(capacity + held + 1) {}

  // Fixed.
  const int capacity;
  const int held_limit;
  const Drop drop;

  std::vector<Frame> frames;  // the last one is scrap: written to after a stop, never published
  SlotRing ready;             // fed by the producer
  SlotRing free;              // fed by the consumer

  int writing = 0;       // producer's
  int held_by_user = 0;  // consumer's

  // Anyone's. `accepted` is raised before a frame can be popped or dropped, so that no observer
  // who reads it last ever sees more frames leave than came.
  std::atomic<std::int64_t> accepted{0};
  std::atomic<std::int64_t> popped{0};
  std::atomic<std::int64_t> dropped{0};
  std::atomic<std::int64_t> rejected{0};
  std::atomic<bool> closed{false};
  std::atomic<int> stopped{0};  // a number, since std::atomic<bool> has no fetch_or

  std::int64_t waiting() const {
    const std::int64_t gone = popped.load() + dropped.load();
    return accepted.load() - gone;
  }

  // Empties `ready` after a stop; any thread.
  void drop_waiting() {
    for (int slot; ready.take(slot);) count(dropped);
  }

  // The producer's next slot under Drop::newest; false if a stop came meanwhile. Never waits:
  // one of the two queues always has a slot, though the consumer may move it between two looks.
  bool take_newest(int& slot) {
    while (!stopped.load()) {
      if (waiting() <= capacity && free.take(slot)) return true;
      if (ready.take(slot)) {
        count(dropped);
        return true;
      }
      if (free.take(slot)) return true;
    }
    return false;
  }

  // The producer's next slot under Drop::never; false if a stop came meanwhile.
  bool wait_for_free(int& slot) {
    while (!stopped.load()) {
      if (free.take(slot, kSlice)) return true;
    }
    return false;
  }

  void use_scrap() { writing = int(frames.size()) - 1; }
};

FrameQueue::FrameQueue(int capacity, Drop drop, int held) {
  if (capacity < 1 || held < 1) throw std::invalid_argument("frame queue: no room for a frame");
  state_ = std::make_unique<State>(capacity, drop, held);
  for (int slot = 1; slot <= capacity + held; ++slot) state_->free.put(slot);
}

FrameQueue::~FrameQueue() = default;

Frame& FrameQueue::writable() {
  return state_->frames[state_->writing];
}

bool FrameQueue::push() {
  State& s = *state_;
  writable().id = s.accepted.fetch_add(1);
  if (s.stopped.load() != 0 || s.closed.load()) {
    count(s.dropped);
    return false;
  }
  s.ready.put(s.writing);
  // A stop() that came after the look above may have emptied `ready` before this frame was in it.
  // Both sides use a read-modify-write, so one of the two sees the other, and empties it.
  if (s.stopped.fetch_or(0)) s.drop_waiting();
  const bool more = s.drop == Drop::newest ? s.take_newest(s.writing) : s.wait_for_free(s.writing);
  if (!more) s.use_scrap();
  return more;
}

void FrameQueue::reject() {
  count(state_->rejected);
}

void FrameQueue::close() {
  state_->closed.store(true);
}

Frame* FrameQueue::pop(microseconds timeout) {
  State& s = *state_;
  if (s.held_by_user >= s.held_limit) throw std::logic_error("frame queue: too many frames held");
  const auto deadline = Clock::now() + timeout;
  while (!s.stopped.load()) {
    const bool last_look = s.closed.load();  // before looking: a frame pushed earlier is then seen
    const auto left = std::chrono::duration_cast<microseconds>(deadline - Clock::now());
    const bool wait = !last_look && left > microseconds::zero();
    int slot;
    if (wait ? s.ready.take(slot, std::min(left, kSlice)) : s.ready.take(slot)) {
      count(s.popped);
      ++s.held_by_user;
      return &s.frames[slot];
    }
    if (!wait) break;
  }
  return nullptr;
}

void FrameQueue::release(Frame* frame) {
  --state_->held_by_user;
  state_->free.put(int(frame - state_->frames.data()));
}

bool FrameQueue::drained() const {
  return state_->closed.load() && state_->waiting() == 0;
}

void FrameQueue::stop() {
  state_->stopped.fetch_or(1);
  state_->drop_waiting();
}

FrameCounts FrameQueue::counts() const {
  const State& s = *state_;
  const auto look = [&s] {
    FrameCounts now;
    now.popped = s.popped.load();
    now.dropped = s.dropped.load();
    now.rejected = s.rejected.load();
    now.received = s.accepted.load() + now.rejected;
    return now;
  };
  // Counters only grow: two equal looks mean that all four stood like this in between.
  for (FrameCounts before = look();;) {
    const FrameCounts after = look();
    if (before.received == after.received && before.popped == after.popped &&
        before.dropped == after.dropped && before.rejected == after.rejected) {
      return after;
    }
    before = after;
  }
}

std::int64_t FrameQueue::received() const {
  return state_->accepted.load() + state_->rejected.load();
}
std::int64_t FrameQueue::dropped() const {
  return state_->dropped.load();
}
std::int64_t FrameQueue::rejected() const {
  return state_->rejected.load();
}
std::int64_t FrameQueue::popped() const {
  return state_->popped.load();
}

}  // namespace millrace::io
