// What workers tell each other: tokens, by links between the replicas of a schedule.
#pragma once

#include <readerwriterqueue/readerwritercircularbuffer.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "engine/monitor/clock.h"
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
  Clock::time_point sent;  ///< from another rank: when, by the clock here; else never
};

/// How long a wait lasts before the waiter looks up: to ask whether it should give up, and, when
/// it has launched what is not over, to see whether it is now.
constexpr std::chrono::microseconds kPatience{20'000}, kImpatience{50};

/// The giver's end of a way for tokens from one replica to another. One thread at a time sends.
class Link {
 public:
  virtual ~Link() = default;
  /// False if there was no room within `patience`.
  virtual bool offer(const Token& token, std::chrono::microseconds patience) = 0;
  template <class GiveUp>
  bool send(const Token& token, const GiveUp& give_up) {
    while (!offer(token, kPatience)) {
      if (give_up()) return false;
    }
    return true;
  }
};

/// A bounded queue of tokens: the link within a process. One thread sends, one receives.
class TokenQueue final : public Link {
 public:
  explicit TokenQueue(std::size_t capacity) : queue_(capacity) {}

  bool try_receive(Token& token) { return queue_.try_dequeue(token); }
  /// False if there was none within `patience`; of 0 it looks once.
  bool receive(Token& token, std::chrono::microseconds patience) {
    return patience.count() == 0 ? try_receive(token) : queue_.wait_dequeue_timed(token, patience);
  }
  bool offer(const Token& token, std::chrono::microseconds patience) override {
    return queue_.wait_enqueue_timed(token, patience);
  }

 private:
  moodycamel::BlockingReaderWriterCircularBuffer<Token> queue_;
};

/// The links that a schedule's signals go by: one for each kind, giver and taker.
class Channels {
 public:
  /// `capacity`: tokens that each holds before a send waits.
  Channels(const Lowering& lowering, std::size_t capacity) : by_giver_(lowering.replica_ids()) {
    using Kind = Signal::Kind;
    const auto add = [&](Kind kind, int from, int to) {
      by_giver_[std::size_t(from)].push_back({kind, to, std::make_unique<TokenQueue>(capacity)});
      Channel& added = by_giver_[std::size_t(from)].back();
      added.link = added.queue.get();
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

  /// Where the taker of a signal finds it, and where its giver sends it.
  TokenQueue& queue(const Signal& signal) { return *find(signal).queue; }
  Link& link(const Signal& signal) { return *find(signal).link; }
  /// Has every channel that `elsewhere` gives a link for sent by that, which outlives this.
  template <class Elsewhere>
  void divert(const Elsewhere& elsewhere) {
    for (int from = 0; from < int(by_giver_.size()); ++from) {
      for (Channel& channel : by_giver_[std::size_t(from)]) {
        if (Link* const link = elsewhere(channel.kind, from, channel.to)) channel.link = link;
      }
    }
  }

 private:
  struct Channel {
    Signal::Kind kind;
    int to;
    std::unique_ptr<TokenQueue> queue;
    Link* link = nullptr;  ///< the queue, or a way to another process's
  };
  Channel& find(const Signal& signal) {
    for (Channel& channel : by_giver_[std::size_t(signal.from)]) {
      if (channel.kind == signal.kind && channel.to == signal.to) return channel;
    }
    throw std::logic_error("no such channel");
  }
  std::vector<std::vector<Channel>> by_giver_;
};

}  // namespace millrace::engine
