// A queue of slot numbers between threads.
#pragma once

#include <atomic>   // entries and positions
#include <chrono>   // time-outs
#include <cstdint>  // positions
#include <vector>   // entries

#include <semaphore.h>  // sleeping until there is an entry

namespace millrace::io {

/// First in, first out; fed by one thread, emptied by any number. Neither locks nor allocates; a
/// call enters the kernel only to sleep or to wake a sleeper. At most `entries` numbers may be in
/// it at once, which whoever hands out the numbers sees to.
class SlotRing {
 public:
  explicit SlotRing(int entries);
  ~SlotRing();
  SlotRing(const SlotRing&) = delete;
  SlotRing& operator=(const SlotRing&) = delete;

  void put(int number);
  /// False if there is none.
  bool take(int& number);
  /// False if there is none for so long.
  bool take(int& number, std::chrono::microseconds timeout);

 private:
  int claim();

  std::vector<std::atomic<int>> entries_;
  // Positions only grow; modulo the number of entries they are places.
  alignas(64) std::atomic<std::uint64_t> tail_{0};  // the feeder's next
  alignas(64) std::atomic<std::uint64_t> head_{0};  // the next to be taken
  sem_t filled_;                                    // counts what can be taken
};

}  // namespace millrace::io
