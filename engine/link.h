// What two neighbouring stages share: two single-producer single-consumer queues of tokens.
#pragma once

#include <readerwriterqueue/readerwritercircularbuffer.h>  // bounded SPSC queue

#include <atomic>   // stop flag
#include <chrono>   // how often a wait looks at it
#include <cstdint>  // sample numbers

namespace millrace::engine {

/// Says that a sample's activations or gradient lie in its slot. After the send they are the
/// receiver's to read.
struct Token {
  std::int64_t sample = 0;
  std::int64_t origin = 0;  ///< gradients: the sample whose loss made it
  bool end = false;         ///< activations: the stream ends before `sample`
};

/// A bounded queue of tokens. One thread sends, one receives; either gives up when `stop` is set.
class TokenQueue {
 public:
  explicit TokenQueue(std::size_t capacity) : queue_(capacity) {}

  bool try_receive(Token& token) { return queue_.try_dequeue(token); }
  bool receive(Token& token, const std::atomic<bool>& stop) {
    while (!queue_.wait_dequeue_timed(token, kPatience)) {
      if (stop.load(std::memory_order_relaxed)) return false;
    }
    return true;
  }
  bool send(const Token& token, const std::atomic<bool>& stop) {
    while (!queue_.wait_enqueue_timed(token, kPatience)) {
      if (stop.load(std::memory_order_relaxed)) return false;
    }
    return true;
  }

 private:
  static constexpr std::chrono::milliseconds kPatience{20};
  moodycamel::BlockingReaderWriterCircularBuffer<Token> queue_;
};

/// Between stage i and i+1: activations go down, gradients come up.
struct Link {
  explicit Link(std::size_t capacity) : activations(capacity), gradients(capacity) {}
  TokenQueue activations;
  TokenQueue gradients;
};

}  // namespace millrace::engine
