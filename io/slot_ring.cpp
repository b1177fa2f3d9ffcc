#include "io/slot_ring.h"

#include <cerrno>  // interrupted waits

#include <time.h>  // the clock to wait by

namespace millrace::io {

SlotRing::SlotRing(int entries) : entries_(entries) {
  sem_init(&filled_, 0, 0);
}

SlotRing::~SlotRing() {
  sem_destroy(&filled_);
}

void SlotRing::put(int number) {
  const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
  entries_[tail % entries_.size()].store(number, std::memory_order_relaxed);
  tail_.store(tail + 1, std::memory_order_release);
  sem_post(&filled_);
}

bool SlotRing::take(int& number) {
  while (sem_trywait(&filled_) != 0) {
    if (errno != EINTR) return false;
  }
  number = claim();
  return true;
}

bool SlotRing::take(int& number, std::chrono::microseconds timeout) {
  if (take(number)) return true;
  // Not the wall clock: somebody may set it back an hour meanwhile.
  timespec until{};
  clock_gettime(CLOCK_MONOTONIC, &until);
  const std::int64_t nanoseconds = until.tv_nsec + timeout.count() % 1000000 * 1000;
  until.tv_sec += timeout.count() / 1000000 + nanoseconds / 1000000000;
  until.tv_nsec = nanoseconds % 1000000000;
  while (sem_clockwait(&filled_, CLOCK_MONOTONIC, &until) != 0) {
    if (errno != EINTR) return false;
  }
  number = claim();
  return true;
}

// The semaphore has let this thread in, so an entry is there for it; which one, the exchange says.
int SlotRing::claim() {
  std::uint64_t head = head_.load();
  for (;;) {
    if (head >= tail_.load(std::memory_order_acquire)) {
      head = head_.load();
      continue;
    }
    // Should another thread be first, this may be an entry written since; it is then not used.
    const int number = entries_[head % entries_.size()].load(std::memory_order_relaxed);
    if (head_.compare_exchange_weak(head, head + 1)) return number;
  }
}

}  // namespace millrace::io
