// What a worker keeps to itself for a while: messages until its turn ends, news until the work that
// they are about is over.
#pragma once

#include <chrono>   // launches
#include <cstdint>  // samples
#include <vector>   // memory taken beforehand

#include "engine/pipeline/link.h"
#include "engine/schedule/schedule.h"

namespace millrace::engine {

/// Tokens that go out when the turn ends.
class Outbox {
 public:
  explicit Outbox(std::size_t room) { tokens_.reserve(room); }
  void put(TokenQueue& to, const Token& token) { tokens_.push_back({&to, token}); }
  template <class GiveUp>
  void send(const GiveUp& give_up) {
    for (const auto& [queue, token] : tokens_)
      queue->send(token, [&] { return give_up(token.sample); });
    tokens_.clear();
  }

 private:
  struct Outgoing {
    TokenQueue* queue;
    Token token;
  };
  std::vector<Outgoing> tokens_;
};

/// News of an action of one stage.
struct Note {
  enum class Kind {
    timed,      ///< how long the turn's work took
    predicted,  ///< loss and prediction are there
    released,   ///< the stage is done with the sample
    updated,    ///< the weights are, unless the step says that it was skipped
    left_out,   ///< an update that the guard, or a lack of gradients, left out
  };
  Kind kind = Kind::timed;
  Action action;
  std::int64_t launch = -1;  ///< when that is over it may be told; -1: not launched yet
  std::chrono::steady_clock::time_point launched;
  std::int64_t number = 0;  ///< timed: ns on the host; updated: the gradient's age
  int forwards = 0;         ///< timed: samples in the turn
  bool flag = false;        ///< updated, left_out: there was something to learn
};

/// Notes in the order they were taken: a ring that grows where it must, which is rare.
class Notes {
 public:
  explicit Notes(std::size_t room) : ring_(room) {}
  bool empty() const { return taken_ == told_; }
  void take(const Note& note) {
    if (taken_ - told_ == ring_.size()) grow();
    ring_[taken_++ % ring_.size()] = note;
  }
  Note& front() { return ring_[told_ % ring_.size()]; }
  void pop() { ++told_; }
  /// Calls `visit` for those that are not launched yet.
  template <class Visit>
  void launched(const Visit& visit) {
    for (; launched_ < taken_; ++launched_) visit(ring_[launched_ % ring_.size()]);
  }

 private:
  void grow() {
    std::vector<Note> larger(2 * ring_.size());
    for (std::size_t i = told_; i < taken_; ++i)
      larger[i % larger.size()] = ring_[i % ring_.size()];
    ring_ = std::move(larger);
  }
  std::vector<Note> ring_;
  std::size_t taken_ = 0, launched_ = 0, told_ = 0;
};

}  // namespace millrace::engine
