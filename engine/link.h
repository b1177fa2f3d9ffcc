// What two neighbouring stages share: two single-producer single-consumer queues of tokens.
#pragma once

#include <readerwriterqueue/readerwritercircularbuffer.h>  // bounded SPSC queue

#include <chrono>   // how often a wait looks up
#include <cstdint>  // sample numbers

namespace millrace::engine {

/// Says that a sample's activations or gradient lie in its slot. After the send they are the
/// receiver's to read.
struct Token {
  std::int64_t sample = 0;
  std::int64_t origin = 0;  ///< gradients: the sample whose loss made it
};

/// A bounded queue of tokens. One thread sends, one receives; a wait looks up every 20 ms to ask
/// whether it should give up.
class TokenQueue {
 public:
  explicit TokenQueue(std::size_t capacity) : queue_(capacity) {}

  bool try_receive(Token& token) { return queue_.try_dequeue(token); }
  template <class GiveUp>
  bool receive(Token& token, const GiveUp& give_up) {
    while (!queue_.wait_dequeue_timed(token, kPatience)) {
      if (give_up()) return false;
    }
    return true;
  }
  template <class GiveUp>
  bool send(const Token& token, const GiveUp& give_up) {
    while (!queue_.wait_enqueue_timed(token, kPatience)) {
      if (give_up()) return false;
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
