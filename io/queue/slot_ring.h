// A queue of slot numbers between threads.
#pragma once

#include <concurrentqueue/blockingconcurrentqueue.h>

#include <chrono>

namespace millrace::io {

/// First in, first out; one thread puts, any number of threads take. Neither locks nor allocates
/// after construction, and enters the kernel only to sleep or to wake a sleeper. The caller makes
/// sure that at most `entries` numbers are in it: moodycamel's queue has no exact bound.
class SlotRing {
 public:
  explicit SlotRing(int entries) : queue_(std::size_t(entries), 1, 0), feeder_(queue_) {}

  void put(int number) { queue_.enqueue(feeder_, number); }
  /// False if there is none.
  bool take(int& number) { return queue_.try_dequeue(number); }
  /// False if there is none for so long.
  bool take(int& number, std::chrono::microseconds timeout) {
    return queue_.wait_dequeue_timed(number, timeout);
  }

 private:
  moodycamel::BlockingConcurrentQueue<int> queue_;
  moodycamel::ProducerToken feeder_;
};

}  // namespace millrace::io
