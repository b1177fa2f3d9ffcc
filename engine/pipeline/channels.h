#pragma once

#include <readerwriterqueue/readerwritercircularbuffer.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/monitor/clock.h"
#include "engine/pipeline/loss_guard.h"
#include "engine/schedule/lowering.h"

namespace millrace::engine {

/// Hands a sample's activations or gradient, in its slot, to the receiver.
struct Token {
  std::int64_t sample = 0;
  std::int64_t origin = 0;    ///< gradients: the sample of the loss
  Alarm alarm = Alarm::none;  ///< gradients: the loss guard's verdict on that loss
  /// gradients: the sample's; only a trained one has a gradient. meetings: the worst among the
  /// samples that the replica's update covers
  Fate fate = Fate::trained;
  Clock::time_point sent;  ///< when, by this rank's clock, if from another rank; otherwise unset
};

/// How long a wait may block: kPatience before it checks whether to give up, kImpatience while a
/// launch of the waiting worker is in flight.
constexpr std::chrono::microseconds kPatience{20'000}, kImpatience{50};

/// A bounded queue. One thread sends, one receives.
class TokenQueue {
 public:
  explicit TokenQueue(std::size_t capacity) : queue_(capacity) {}

  /// False if there is none within `patience`; 0: does not block.
  bool receive(Token& token, std::chrono::microseconds patience) {
    return patience.count() == 0 ? queue_.try_dequeue(token)
                                 : queue_.wait_dequeue_timed(token, patience);
  }
  /// False if there is no room within `patience`.
  bool offer(const Token& token, std::chrono::microseconds patience) {
    return closed_.load(std::memory_order_acquire) || queue_.wait_enqueue_timed(token, patience);
  }
  /// Called by a receiver that takes no more: tokens sent from now on are lost.
  void close() { closed_.store(true, std::memory_order_release); }

 private:
  moodycamel::BlockingReaderWriterCircularBuffer<Token> queue_;
  std::atomic<bool> closed_{false};
};

/// From one replica to another.
struct Channel {
  /// Sends a token; false if there is no room yet.
  using Elsewhere = std::function<bool(const Token&)>;

  Signal::Kind kind;
  int to;
  std::unique_ptr<TokenQueue> queue;
  Elsewhere elsewhere{};  ///< set if the taker is in another process

  /// Waits for room until `give_up()`. One thread at a time sends.
  template <class GiveUp>
  void send(const Token& token, const GiveUp& give_up) {
    while (!(elsewhere ? elsewhere(token) : queue->offer(token, kPatience)) && !give_up()) {
    }
  }
};

/// A schedule's channels: one for each signal kind, sender and receiver.
class Channels {
 public:
  /// Tokens that a channel holds before sends block: `capacity` between stages, else `room`.
  Channels(const Lowering& lowering, std::size_t capacity, std::size_t room)
      : by_giver_(lowering.replica_ids()) {
    using Kind = Signal::Kind;
    const auto add = [&](Kind kind, int from, int to) {
      const bool between_stages = kind == Kind::activation || kind == Kind::gradient;
      by_giver_[std::size_t(from)].push_back(
          {kind, to, std::make_unique<TokenQueue>(between_stages ? capacity : room)});
    };
    for (int replica_id = 0; replica_id < lowering.replica_ids(); ++replica_id) {
      const int stage = lowering.stage(replica_id);
      for (int other = 0; other < lowering.replica_ids(); ++other) {
        if (lowering.stage(other) == stage + 1) add(Kind::activation, replica_id, other);
        if (lowering.stage(other) == stage - 1) add(Kind::gradient, replica_id, other);
        if (lowering.stage(other) != stage || other == replica_id) continue;
        for (const Kind kind : {Kind::meeting, Kind::admission, Kind::prediction})
          add(kind, replica_id, other);
      }
    }
  }

  Channel& of(const Signal& signal) {
    return *std::ranges::find_if(by_giver_[std::size_t(signal.from)], [&](const Channel& channel) {
      return channel.kind == signal.kind && channel.to == signal.to;
    });
  }
  /// Call when `replica_id` has ended.
  void close(int replica_id) {
    for (std::vector<Channel>& channels : by_giver_) {
      for (Channel& channel : channels) {
        if (channel.to == replica_id) channel.queue->close();
      }
    }
  }
  /// Sets Channel::elsewhere of each channel of `kind` to `elsewhere(from, to)`, which may be null.
  template <class Elsewhere>
  void divert(Signal::Kind kind, const Elsewhere& elsewhere) {
    for (int from = 0; from < int(by_giver_.size()); ++from) {
      for (Channel& channel : by_giver_[std::size_t(from)]) {
        if (channel.kind == kind) channel.elsewhere = elsewhere(from, channel.to);
      }
    }
  }

 private:
  std::vector<std::vector<Channel>> by_giver_;
};

}  // namespace millrace::engine
