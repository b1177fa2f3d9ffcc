// Which slots are free for a new sample.
#pragma once

#include <concurrentqueue/blockingconcurrentqueue.h>  // LightweightSemaphore: spins before it sleeps

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

namespace millrace::engine {

/// Slot (sample % slots) is free again when all `stages` have released the sample that had it.
/// One thread at a time acquires; each stage releases a sample once.
class SlotPool {
 public:
  SlotPool(int slots, int stages) : slots_(slots), stages_(stages), state_(new State[slots]) {
    for (int slot = 0; slot < slots; ++slot) state_[slot].free.signal();
  }

  int slot_of(std::int64_t sample) const { return int(sample % slots_); }

  bool try_acquire(std::int64_t sample) {
    return take(slot_of(sample), state_[slot_of(sample)].free.tryWait());
  }
  /// Waits until the sample's slot is free; false if it was not within `patience`; of 0 it looks
  /// once.
  bool acquire(std::int64_t sample, std::chrono::microseconds patience) {
    if (patience.count() == 0) return try_acquire(sample);
    return take(slot_of(sample), state_[slot_of(sample)].free.wait(patience.count()));
  }
  void release(std::int64_t sample) {
    State& state = state_[slot_of(sample)];
    if (state.holders.fetch_sub(1, std::memory_order_acq_rel) == 1) state.free.signal();
  }

 private:
  struct alignas(64) State {
    std::atomic<int> holders{0};
    moodycamel::LightweightSemaphore free;
  };

  bool take(int slot, bool taken) {
    if (taken) state_[slot].holders.store(stages_, std::memory_order_relaxed);
    return taken;
  }

  int slots_;
  int stages_;
  std::unique_ptr<State[]> state_;
};

}  // namespace millrace::engine
