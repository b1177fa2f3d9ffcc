// What workers tell each other: single-producer single-consumer queues of tokens.
#pragma once

#include <readerwriterqueue/readerwritercircularbuffer.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "engine/pipeline/loss_guard.h"
#include "engine/schedule/lowering.h"

namespace millrace::engine {

/// Says that a sample's activations or gradient lie in its slot. After the send they are the
/// receiver's to read.
struct Token {
  std::int64_t sample = 0;
  std::int64_t origin = 0;    ///< gradients: the sample whose loss made it
  Alarm alarm = Alarm::none;  ///< gradients: what the loss guard said of that loss
  /// gradients: false: there is none, that loss is not learned from; meetings: whether the replica
  /// has one of every sample
  bool learns = true;
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

/// The queues that a schedule's signals go by: one for each kind, giver and taker.
class Channels {
 public:
  /// `capacity`: tokens that each holds before a send waits.
  Channels(const Lowering& lowering, std::size_t capacity) : by_giver_(lowering.units()) {
    using Kind = Signal::Kind;
    const auto add = [&](Kind kind, int from, int to) {
      by_giver_[std::size_t(from)].push_back({kind, to, std::make_unique<TokenQueue>(capacity)});
    };
    for (int unit = 0; unit < lowering.units(); ++unit) {
      const int stage = lowering.stage(unit);
      for (int other = 0; other < lowering.units(); ++other) {
        if (lowering.stage(other) == stage + 1) add(Kind::activation, unit, other);
        if (lowering.stage(other) == stage - 1) add(Kind::gradient, unit, other);
        if (lowering.stage(other) != stage || other == unit) continue;
        for (const Kind kind : {Kind::meeting, Kind::admission, Kind::prediction})
          add(kind, unit, other);
      }
    }
  }

  TokenQueue& operator()(const Signal& signal) {
    for (Channel& channel : by_giver_[std::size_t(signal.from)]) {
      if (channel.kind == signal.kind && channel.to == signal.to) return *channel.queue;
    }
    throw std::logic_error("no such channel");
  }

 private:
  struct Channel {
    Signal::Kind kind;
    int to;
    std::unique_ptr<TokenQueue> queue;
  };
  std::vector<std::vector<Channel>> by_giver_;
};

}  // namespace millrace::engine
