#pragma once

#include <concurrentqueue/blockingconcurrentqueue.h>

#include <chrono>

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

}  // namespace millrace::io
