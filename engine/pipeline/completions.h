// What a worker keeps to itself for a while: tokens until its launch group ends, completions until
// the work that they are about is over.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "engine/pipeline/channels.h"

namespace millrace::engine {

/// Tokens that go out when the launch group ends.
class Outbox {
 public:
  explicit Outbox(std::size_t room) { tokens_.reserve(room); }
  void put(Link& to, const Token& token) { tokens_.push_back({&to, token}); }
  template <class GiveUp>
  void send(const GiveUp& give_up) {
    for (const Outgoing& one : tokens_)
      one.link->send(one.token, [&] { return give_up(one.token.sample); });
    tokens_.clear();
  }

 private:
  struct Outgoing {
    Link* link;
    Token token;
  };
  std::vector<Outgoing> tokens_;
};

/// Something of one stage that others may know once the launch it belongs to is over.
struct Completion {
  enum class Kind {
    timed,      ///< how long the launch group's work took
    predicted,  ///< the prediction is there, and the loss unless targets come late
    compared,   ///< the loss is there too
    released,   ///< the stage is done with the sample
    updated,    ///< the weights are, unless the step says that it was skipped
    left_out,   ///< an update that the guard, or a lack of gradients, left out
  };
  Kind kind = Kind::timed;
  Action action;
  std::int64_t launch = -1;  ///< -1: not launched yet
  std::chrono::steady_clock::time_point launched;
  std::int64_t number =
      0;             ///< timed: ns on the host; updated: the gradient's age, as StageMeter has it
  int forwards = 0;  ///< timed: samples in the group
  bool learned = false;  ///< updated, left_out: there was something to learn
  bool untold = false;   ///< left_out: for lack of a target
};

/// Completions in the order they were noted: a ring that grows where it must, which is rare.
class CompletionQueue {
 public:
  explicit CompletionQueue(std::size_t room) : ring_(room) {}
  bool empty() const { return noted_ == taken_; }
  void push(const Completion& completion) {
    if (noted_ - taken_ == ring_.size()) grow();
    ring_[noted_++ % ring_.size()] = completion;
  }
  Completion& front() { return ring_[taken_ % ring_.size()]; }
  void pop() { ++taken_; }
  /// Calls `visit` for those that are not launched yet.
  template <class Visit>
  void launched(const Visit& visit) {
    for (; launched_ < noted_; ++launched_) visit(ring_[launched_ % ring_.size()]);
  }

 private:
  void grow() {
    std::vector<Completion> larger(2 * ring_.size());
    for (std::size_t i = taken_; i < noted_; ++i)
      larger[i % larger.size()] = ring_[i % ring_.size()];
    ring_ = std::move(larger);
  }
  std::vector<Completion> ring_;
  std::size_t noted_ = 0, launched_ = 0, taken_ = 0;
};

}  // namespace millrace::engine
