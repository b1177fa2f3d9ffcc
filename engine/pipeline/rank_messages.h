// What is in messages and letters between ranks. For rank_links*.cpp.
#pragma once

#include <stdexcept>

#include "engine/monitor/histogram.h"
#include "engine/pipeline/bytes.h"
#include "engine/pipeline/rank_links.h"

namespace millrace::engine {

/// Of the tokens that a message brings.
inline Signal::Kind kind_of(Cargo cargo) {
  switch (cargo) {
    case Cargo::activation:
      return Signal::Kind::activation;
    case Cargo::gradient:
      return Signal::Kind::gradient;
    case Cargo::meeting:
      return Signal::Kind::meeting;
    case Cargo::turn:
      return Signal::Kind::prediction;
    default:
      throw std::logic_error("a message without a token");
  }
}

/// Whether it is about the sample in a slot, and brings tensors.
inline bool has_payload(Cargo cargo) {
  return cargo != Cargo::release && cargo != Cargo::meeting && cargo != Cargo::turn;
}

/// What a rank with the last stage has counted in this run, for the observer's.
struct LossCounts {
  FateCounts fates;
  LossGuard::Told guard;
};

/// What the turn to predict brings, where there is a guard.
struct GuardTurn {
  LossGuard::State state;
  LossGuard::Told told;
};

inline LossCounts counts_of(const FateCounts& fates, const LossGuard* guard) {
  return {fates, guard ? guard->told() : LossGuard::Told()};
}

struct RankLinks::Head {
  std::int64_t number = 0;  ///< 0, 1, ... on its way
  int from = 0, to = 0;     ///< replicas
  Token token;
  Clock::time_point sent;
  SampleInfo info;    ///< activation, target, sample
  float loss = 0;     ///< prediction
  LossCounts counts;  ///< prediction
};

struct RankLinks::Place {
  Head head{};
  std::unique_ptr<Payload> payload{};
  std::vector<std::byte> bytes{};  ///< what has no payload: of a meeting, of a turn
  int port = -1;
};

/// Messages one after another, each from its place to the same one there.
struct RankLinks::Way {
  Cargo cargo;
  int stage, peer;
  std::int64_t bytes = 0;         ///< of a message
  std::vector<Place> places{};    ///< by slot where there is a payload, or in turn
  std::int64_t messages = 0;      ///< sent, or handled
  std::vector<Place*> waiting{};  ///< receiving: those not handled yet, by number mod places
  int last = -1;                  ///< sending: the port last started
  Histogram took{};               ///< receiving
};

/// What a rank says when its workers have ended.
struct RankLinks::Final {
  LossCounts counts;
  std::int64_t predictions = 0;
};

}  // namespace millrace::engine
