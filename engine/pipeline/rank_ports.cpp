#include "engine/pipeline/rank_ports.h"

#include <algorithm>

namespace millrace::engine {
namespace {

/// Hands the guard's state to the next replica that judges. `guard` may be null.
Payload guard_turn(LossGuard* guard) {
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

/// Whether the cargo carries tensors of the sample in a slot.
bool has_slot(Cargo cargo) {
  return cargo != Cargo::release && cargo != Cargo::meeting && cargo != Cargo::turn;
}

/// A sample that is not trained on has no gradient.
bool is_empty(Cargo cargo, const Token& token) {
  return cargo == Cargo::gradient && token.fate != Fate::trained;
}

}  // namespace

RankPorts::RankPorts(Shared& shared)
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

RankPorts::~RankPorts() {
  const std::lock_guard lock(exchange_.mutex());
  exchange_.close_ports();
}

int RankPorts::rank_of(int replica_id) const {
  return options_.rank_of_worker[std::size_t(shared_.lowering.worker(replica_id))];
}

bool RankPorts::has_last(int rank) const {
  const int last = shared_.schedule().stages - 1;
  for (int replica = 0; replica < shared_.lowering.replicas(last); ++replica) {
    if (rank_of(shared_.lowering.replica_id(last, replica)) == rank) return true;
  }
  return false;
}

RankPorts::Route* RankPorts::find(Cargo cargo, int stage, int peer, bool sends) const {
  const auto found = std::ranges::find_if(routes_, [&](const auto& route) {
    return route->cargo == cargo && route->stage == stage && route->peer == peer &&
           route->sends == sends;
  });
  return found == routes_.end() ? nullptr : found->get();
}

RankPorts::Buffer& RankPorts::buffer_for(Route& route, std::int64_t sample) {
  return route.buffers[has_slot(route.cargo) ? std::size_t(shared_.pool.slot_of(sample))
                                             : std::size_t(route.messages) % route.buffers.size()];
}

void RankPorts::put(Route& route, const Head& head) {
  Buffer& buffer = buffer_for(route, head.token.sample);
  buffer.head = head;
  buffer.head.number = route.messages++;
  buffer.head.sent = Clock::now();
  if (buffer.payload.pack && !is_empty(route.cargo, head.token))
    buffer.payload.pack(head.from, head.to);
  exchange_.start(route.last = buffer.port);
}

void RankPorts::unpack(const Route& route, Buffer& buffer) {
  if (!buffer.payload.unpack || is_empty(route.cargo, buffer.head.token)) return;
  buffer.payload.unpack(buffer.head.from, buffer.head.to);
}

bool RankPorts::is_sending() const {
  return std::any_of(routes_.begin(), routes_.end(), [&](const auto& route) {
    return route->last >= 0 && !exchange_.over(route->last);
  });
}

bool RankPorts::all_sent() const {
  return std::all_of(routes_.begin(), routes_.end(), [&](const auto& route) {
    return !route->sends ||
           std::all_of(route->buffers.begin(), route->buffers.end(),
                       [&](const Buffer& buffer) { return exchange_.over(buffer.port); });
  });
}

std::vector<LinkTime> RankPorts::times() const {
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

Exchange::Parts RankPorts::fill(Buffer& buffer, const Route& route, int slot) {
  if (route.cargo == Cargo::turn) {
    buffer.payload = guard_turn(shared_.pipeline.guard);
  } else if (route.cargo != Cargo::release) {
    buffer.payload = freight_.payload(route.cargo, route.stage, slot, route.sends);
  }
  Exchange::Parts parts{std::as_writable_bytes(std::span(&buffer.head, 1))};
  parts.insert(parts.end(), buffer.payload.parts.begin(), buffer.payload.parts.end());
  return parts;
}

void RankPorts::open(Cargo cargo, int stage, int peer, bool sends) {
  if (find(cargo, stage, peer, sends)) return;
  const Schedule& schedule = shared_.schedule();
  Route& route = *routes_.emplace_back(
      std::make_unique<Route>(Route{.cargo = cargo, .stage = stage, .peer = peer, .sends = sends}));
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
    buffer.port =
        sends ? exchange_.open_to(peer, tag, parts) : exchange_.open_from(peer, tag, parts);
    ++tag;
    of_port_.resize(std::max(of_port_.size(), std::size_t(buffer.port) + 1));
    of_port_[std::size_t(buffer.port)] = {&route, &buffer};
    if (!sends) exchange_.start(buffer.port);
  }
}

void RankPorts::open_all() {
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

}  // namespace millrace::engine
