// A queue of slot numbers between threads.
#pragma once

#include <concurrentqueue/blockingconcurrentqueue.h>  // the lock-free queue

#include <chrono>  // time-outs

namespace millrace::io {

/// First in, first out; fed by one thread, emptied by any number. Neither locks nor allocates after
/// construction; a call enters the kernel only to sleep or to wake a sleeper. At most `entries`
/// numbers may be in it at once, which whoever hands out the numbers sees to: moodycamel's queue
/// itself bounds nothing exactly.
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
