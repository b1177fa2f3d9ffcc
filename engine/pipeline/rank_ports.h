#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/monitor/histogram.h"
#include "engine/pipeline/rank_options.h"
#include "engine/pipeline/shared.h"

namespace millrace::engine {

/// Counts of a rank with the last stage in this run, for rank 0's observer.
struct LossCounts {
  FateCounts fates;
  LossGuard::Status guard;
};

/// Ports for every kind of message that this rank exchanges in one run of a schedule; the workers'
/// ranks decide which kinds. Allocates nothing after construction. Called under Exchange::mutex(),
/// except the constructor, the destructor and queries of where workers are.
class RankPorts {
 public:
  /// Precedes each message.
  struct Head {
    std::int64_t number = 0;  ///< 0, 1, ... on its route
    int from = 0, to = 0;     ///< replicas
    Token token;
    Clock::time_point sent;
    SampleInfo info;    ///< activation, target, sample
    float loss = 0;     ///< prediction
    LossCounts counts;  ///< prediction
  };
  struct Buffer {
    Head head{};
    Payload payload{};
    int port = -1;
  };
  /// Messages of one kind to or from one rank, in order.
  struct Route {
    Cargo cargo;
    int stage, peer;
    bool sends;
    std::int64_t bytes = 0;          ///< per message
    std::vector<Buffer> buffers{};   ///< [slot] if about a sample, otherwise used in turn
    std::int64_t messages = 0;       ///< sent, or handled
    std::vector<Buffer*> waiting{};  ///< receiving: arrived out of order, by number mod buffers
    int last = -1;                   ///< sending: the port last started
    Histogram took{};                ///< receiving: ns in transit
  };

  /// `shared`, of a pipeline over ranks, must outlive this.
  explicit RankPorts(Shared& shared)
      : options_(*shared.pipeline.ranks),
        exchange_(*options_.exchange),
        freight_(*options_.freight),
        shared_(shared) {
    takes_samples_.assign(std::size_t(exchange_.ranks()), true);
    takes_samples_[0] = false;
    for (int replica_id = 0; replica_id < shared.lowering.replica_ids(); ++replica_id) {
      if (freight_.target_is_input() && shared.takes_target(shared.lowering.stage(replica_id)))
        takes_samples_[std::size_t(rank_of(replica_id))] = false;
    }
    const std::lock_guard lock(exchange_.mutex());
    open_all();
  }
  ~RankPorts() {
    const std::lock_guard lock(exchange_.mutex());
    exchange_.close_ports();
  }

  int rank() const { return exchange_.rank(); }
  int rank_of(int replica_id) const {
    return options_.rank_of_worker[std::size_t(shared_.lowering.worker(replica_id))];
  }
  bool here(int replica_id) const { return rank_of(replica_id) == rank(); }
  /// Whether a rank has a replica of the last stage.
  bool has_last(int rank) const {
    const int last = shared_.schedule().stages - 1;
    for (int replica = 0; replica < shared_.lowering.replicas(last); ++replica) {
      if (rank_of(shared_.lowering.replica_id(last, replica)) == rank) return true;
    }
    return false;
  }
  /// Whether a rank gets its samples' inputs in separate messages, not with the targets.
  bool takes_samples(int rank) const { return takes_samples_[std::size_t(rank)]; }

  const std::vector<std::unique_ptr<Route>>& routes() const { return routes_; }
  Route& to(Cargo cargo, int stage, int peer) { return *find(cargo, stage, peer, true); }
  /// Whether put() may write the next message, about `sample`.
  bool is_free(Route& route, std::int64_t sample) {
    return exchange_.over(buffer_for(route, sample).port);
  }
  void put(Route& route, const Head& head) {
    Buffer& buffer = buffer_for(route, head.token.sample);
    buffer.head = head;
    buffer.head.number = route.messages++;
    buffer.head.sent = Clock::now();
    if (buffer.payload.pack && !is_empty(route.cargo, head.token))
      buffer.payload.pack(head.from, head.to);
    exchange_.start(route.last = buffer.port);
  }
  /// Calls `handle(route, buffer)` for each message that has arrived, in the order of its route. It
  /// must call unpack() before it signals anyone.
  template <class Handle>
  void receive(const Handle& handle) {
    for (int port; (port = exchange_.arrived()) >= 0;) {
      const auto [route, buffer] = of_port_[std::size_t(port)];
      const auto waiting = [route](std::int64_t number) -> Buffer*& {
        return route->waiting[std::size_t(number) % route->waiting.size()];
      };
      waiting(buffer->head.number) = buffer;
      while (Buffer* const next = std::exchange(waiting(route->messages), nullptr)) {
        ++route->messages;
        handle(*route, *next);
        exchange_.start(next->port);
      }
    }
  }
  void unpack(const Route& route, Buffer& buffer) {
    if (!buffer.payload.unpack || is_empty(route.cargo, buffer.head.token)) return;
    buffer.payload.unpack(buffer.head.from, buffer.head.to);
  }

  /// Whether some route's last message is still in flight.
  bool is_sending() const {
    return std::any_of(routes_.begin(), routes_.end(), [&](const auto& route) {
      return route->last >= 0 && !exchange_.over(route->last);
    });
  }
  bool all_sent() const {
    return std::all_of(routes_.begin(), routes_.end(), [&](const auto& route) {
      return !route->sends ||
             std::all_of(route->buffers.begin(), route->buffers.end(),
                         [&](const Buffer& buffer) { return exchange_.over(buffer.port); });
    });
  }
  /// Latencies of messages to this rank so far.
  std::vector<LinkTime> times() const {
    std::vector<LinkTime> all;
    for (const auto& route : routes_) {
      if (route->took.count() == 0) continue;
      all.push_back({.cargo = route->cargo,
                     .stage = route->stage,
                     .from = route->peer,
                     .to = rank(),
                     .bytes = route->bytes,
                     .apart = is_transfer(route->cargo) && route->bytes == sizeof(Head),
                     .messages = route->took.count(),
                     .ms = route->took.median_ms()});
    }
    return all;
  }

 private:
  /// Null: there is none.
  Route* find(Cargo cargo, int stage, int peer, bool sends) const {
    const auto found = std::ranges::find_if(routes_, [&](const auto& route) {
      return route->cargo == cargo && route->stage == stage && route->peer == peer &&
             route->sends == sends;
    });
    return found == routes_.end() ? nullptr : found->get();
  }
  Buffer& buffer_for(Route& route, std::int64_t sample) {
    return route
        .buffers[has_slot(route.cargo) ? std::size_t(shared_.pool.slot_of(sample))
                                       : std::size_t(route.messages) % route.buffers.size()];
  }
  void open_all() {
    const Lowering& lowering = shared_.lowering;
    const auto between = [&](Cargo cargo, int stage, int giver, int taker) {
      if (giver == taker) return;
      if (giver == rank()) open(cargo, stage, taker, true);
      if (taker == rank()) open(cargo, stage, giver, false);
    };
    for (int from = 0; from < lowering.replica_ids(); ++from) {
      const int stage = lowering.stage(from);
      for (int to = 0; to < lowering.replica_ids(); ++to) {
        const int other = lowering.stage(to);
        if (other == stage + 1) between(Cargo::activation, stage, rank_of(from), rank_of(to));
        if (other == stage - 1) between(Cargo::gradient, stage, rank_of(from), rank_of(to));
        if (other == stage) between(Cargo::meeting, stage, rank_of(from), rank_of(to));
        if (other == stage && lowering.last(stage))
          between(Cargo::turn, stage, rank_of(from), rank_of(to));
      }
      if (stage == 0 && takes_samples(rank_of(from))) between(Cargo::sample, 0, 0, rank_of(from));
      if (lowering.last(stage)) between(Cargo::prediction, 0, rank_of(from), 0);
      if (shared_.takes_target(stage)) between(Cargo::target, 0, 0, rank_of(from));
      between(Cargo::release, 0, rank_of(from), 0);
    }
  }
  void open(Cargo cargo, int stage, int peer, bool sends) {
    if (find(cargo, stage, peer, sends)) return;
    const Schedule& schedule = shared_.schedule();
    Route& route = *routes_.emplace_back(std::make_unique<Route>(
        Route{.cargo = cargo, .stage = stage, .peer = peer, .sends = sends}));
    // One buffer per message in flight, so that no send waits. Replicas' gradients are large:
    // one more than a replica sends before it waits for all.
    const int buffers = cargo == Cargo::meeting ? 2 : schedule.slots() + (has_slot(cargo) ? 0 : 1);
    route.buffers.resize(std::size_t(buffers));
    route.waiting.resize(route.buffers.size());
    // Consecutive runs use different tags: a rank may already be in the next one.
    int tag = ((options_.run % 2) * kCargos + int(cargo)) * schedule.stages + stage;
    tag *= schedule.slots() + 1;
    for (Buffer& buffer : route.buffers) {
      const Exchange::Parts parts = fill(buffer, route, int(&buffer - route.buffers.data()));
      route.bytes = 0;
      for (const auto& part : parts) route.bytes += std::int64_t(part.size());
      buffer.port = exchange_.open(peer, tag++, parts, sends);
      of_port_.resize(std::max(of_port_.size(), std::size_t(buffer.port) + 1));
      of_port_[std::size_t(buffer.port)] = {&route, &buffer};
      if (!sends) exchange_.start(buffer.port);
    }
  }
  /// Whether the cargo carries tensors of the sample in a slot.
  static bool has_slot(Cargo cargo) {
    return cargo != Cargo::release && cargo != Cargo::meeting && cargo != Cargo::turn;
  }
  /// A sample that is not trained on has no gradient.
  static bool is_empty(Cargo cargo, const Token& token) {
    return cargo == Cargo::gradient && token.fate != Fate::trained;
  }
  /// Hands the guard's state to the next replica that judges. `guard` may be null.
  static Payload guard_turn(LossGuard* guard) {
    struct Turn {
      LossGuard::State state;
      LossGuard::Status status;
    };
    const auto turn = std::make_shared<Turn>();
    return {.parts = {std::as_writable_bytes(std::span(turn.get(), 1))},
            .pack =
                [=](int, int) {
                  if (guard) *turn = {guard->state(), guard->status()};
                },
            .unpack =
                [=](int, int) {
                  if (guard) guard->go_on_from(turn->state, turn->status);
                }};
  }
  Exchange::Parts fill(Buffer& buffer, const Route& route, int slot) {
    if (route.cargo == Cargo::turn) {
      buffer.payload = guard_turn(shared_.pipeline.guard);
    } else if (route.cargo != Cargo::release) {
      buffer.payload = freight_.payload(route.cargo, route.stage, slot, route.sends);
    }
    Exchange::Parts parts{std::as_writable_bytes(std::span(&buffer.head, 1))};
    parts.insert(parts.end(), buffer.payload.parts.begin(), buffer.payload.parts.end());
    return parts;
  }

  const RankOptions& options_;
  Exchange& exchange_;
  Freight& freight_;
  Shared& shared_;
  std::vector<char> takes_samples_;  ///< [rank]
  std::vector<std::unique_ptr<Route>> routes_;
  std::vector<std::pair<Route*, Buffer*>> of_port_;
};

}  // namespace millrace::engine
