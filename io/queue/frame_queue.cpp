#include "io/queue/frame_queue.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <vector>

#include "io/queue/slot_ring.h"

namespace millrace::io {
namespace {

using std::chrono::microseconds;

// A sleeping thread checks the flags this often, so close() and stop() need not wake it.
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

  std::vector<Frame> frames;  // the last one is written to after a stop and never published
  SlotRing ready;             // fed by the producer
  SlotRing free;              // fed by the consumer

  int writing = 0;       // producer's
  int held_by_user = 0;  // consumer's

  // Any thread's. `accepted` is raised before a frame can be popped or dropped, so an observer that
  // reads it last never sees more frames leave than arrive.
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

  // The producer's next slot under Drop::newest; false after a stop. Never waits: one of the two
  // queues always has a slot, though the consumer may move it between the two calls.
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

  // The producer's next slot under Drop::never; false after a stop.
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
  // A stop() after the check above may have emptied `ready` before this frame was in it. Both sides
  // use a read-modify-write, so at least one of them sees the other and empties it.
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
    const bool last_look = s.closed.load();  // read first: no earlier push is missed
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
  const auto read = [&s] {
    FrameCounts now{
        .popped = s.popped.load(), .dropped = s.dropped.load(), .rejected = s.rejected.load()};
    now.received = s.accepted.load() + now.rejected;
    return now;
  };
  // Counters only grow: after two equal reads, all four had these values in between.
  FrameCounts before, now = read();
  do {
    before = now;
    now = read();
  } while (now != before);
  return now;
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
