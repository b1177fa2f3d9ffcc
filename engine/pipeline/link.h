// What workers tell each other: single-producer single-consumer queues of tokens.
#pragma once

#include <readerwriterqueue/readerwritercircularbuffer.h>  // bounded SPSC queue

#include <chrono>   // how often a wait looks up
#include <cstdint>  // sample numbers
#include <memory>   // queues
#include <vector>   // queues

#include "engine/pipeline/loss_guard.h"

namespace millrace::engine {

/// Says that a sample's activations or gradient lie in its slot. After the send they are the
/// receiver's to read.
struct Token {
  std::int64_t sample = 0;
  std::int64_t origin = 0;    ///< gradients: the sample whose loss made it
  Alarm alarm = Alarm::none;  ///< gradients: what the loss guard said of that loss
  bool learns = true;         ///< gradients: false: there is none, that loss is not learned from
};

/// How long a wait lasts before the waiter looks up: to ask whether it should give up, and, when
/// it has launched what is not over, to see whether it is now.
constexpr std::chrono::microseconds kPatience{20'000}, kImpatience{50};

/// A bounded queue of tokens. One thread sends, one receives.
class TokenQueue {
 public:
  explicit TokenQueue(std::size_t capacity) : queue_(capacity) {}

  bool try_receive(Token& token) { return queue_.try_dequeue(token); }
  /// False if there was none within `patience`.
  bool receive(Token& token, std::chrono::microseconds patience) {
    return queue_.wait_dequeue_timed(token, patience);
  }
  template <class GiveUp>
  bool send(const Token& token, const GiveUp& give_up) {
    while (!queue_.wait_enqueue_timed(token, kPatience)) {
      if (give_up()) return false;
    }
    return true;
  }

 private:
  moodycamel::BlockingReaderWriterCircularBuffer<Token> queue_;
};

/// A queue from each of some workers to each of some others, so that each has one sender and one
/// receiver.
class TokenQueues {
 public:
  TokenQueues(int senders, int receivers, std::size_t capacity) : receivers_(receivers) {
    for (int i = 0; i < senders * receivers; ++i)
      queues_.push_back(std::make_unique<TokenQueue>(capacity));
  }
  TokenQueue& operator()(int sender, int receiver) {
    return *queues_[std::size_t(sender * receivers_ + receiver)];
  }

 private:
  int receivers_;
  std::vector<std::unique_ptr<TokenQueue>> queues_;
};

/// Between the replicas of stage i and those of i+1: activations go down, gradients come up.
struct Link {
  Link(int upper, int lower, std::size_t capacity)
      : activations(upper, lower, capacity), gradients(lower, upper, capacity) {}
  TokenQueues activations;
  TokenQueues gradients;
};

/// Among the replicas of one stage.
struct Circle {
  Circle(int replicas, std::size_t capacity)
      : gradients(replicas, replicas, capacity), turns(replicas, replicas, capacity) {}
  TokenQueues gradients;  ///< "mine for this update are ready, and I have read those of the last"
  TokenQueues turns;      ///< "this sample is admitted (predicted): the next one is yours"
};

}  // namespace millrace::engine
