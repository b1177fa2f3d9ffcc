#pragma once

#include <concurrentqueue/blockingconcurrentqueue.h>  // LightweightSemaphore: spins before it sleeps

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

namespace millrace::engine {

/// Slot sample % slots is free again once all `stages` have released the sample in it. One thread
/// at a time acquires; each stage releases a sample once.
class SlotPool {
 public:
  SlotPool(int slots, int stages) : slots_(slots), stages_(stages), state_(new State[slots]) {
    for (int slot = 0; slot < slots; ++slot) state_[slot].free.signal();
  }

  int slot_of(std::int64_t sample) const { return int(sample % slots_); }

  /// Waits for the sample's slot; false if it is not free within `patience`; 0: does not block.
  bool acquire(std::int64_t sample, std::chrono::microseconds patience) {
    State& state = state_[slot_of(sample)];
    const bool taken =
        patience.count() == 0 ? state.free.tryWait() : state.free.wait(patience.count());
    if (taken) state.holders.store(stages_, std::memory_order_relaxed);
    return taken;
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

  int slots_;
  int stages_;
  std::unique_ptr<State[]> state_;
};

}  // namespace millrace::engine
