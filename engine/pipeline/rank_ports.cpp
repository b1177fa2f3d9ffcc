#include "engine/pipeline/rank_ports.h"

#include <algorithm>
#include <stdexcept>

namespace millrace::engine {
namespace {

/// Hands the guard's state to the next replica that judges. `guard` may be null.
Payload guard_turn(LossGuard* guard) {
  struct Turn {
    LossGuard::State state;
    LossGuard::Told told;
  };
  const auto turn = std::make_shared<Turn>();
  return {.parts = {std::as_writable_bytes(std::span(turn.get(), 1))},
          .pack =
              [=](int, int) {
                if (guard) *turn = {guard->state(), guard->told()};
              },
          .unpack =
              [=](int, int) {
                if (guard) guard->go_on_from(turn->state, turn->told);
              }};
}

/// Whether it carries tensors of the sample in a slot.
bool has_slot(Cargo cargo) {
  return cargo != Cargo::release && cargo != Cargo::meeting && cargo != Cargo::turn;
}

/// A loss that is not learned from has no gradient.
bool is_empty(Cargo cargo, const Token& token) {
  return cargo == Cargo::gradient && !token.learns;
}

}  // namespace

RankPorts::RankPorts(const RankOptions& options, Shared& shared, const PipelineOptions& pipeline)
    : options_(options),
      exchange_(*options.exchange),
      freight_(*options.freight),
      pipeline_(pipeline),
      shared_(shared),
      sending_(std::size_t(kCargos) * std::size_t(shared.schedule.stages)) {
  takes_samples_.assign(std::size_t(exchange_.ranks()), true);
  takes_samples_[0] = false;
  for (int replica_id = 0; replica_id < shared.lowering.replica_ids(); ++replica_id) {
    if (freight_.target_is_input() && takes_loss(shared.lowering.stage(replica_id)))
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
  const int last = shared_.schedule.stages - 1;
  for (int replica = 0; replica < shared_.lowering.replicas(last); ++replica) {
    if (rank_of(shared_.lowering.replica_id(last, replica)) == rank) return true;
  }
  return false;
}

bool RankPorts::takes_loss(int stage) const {
  return shared_.lowering.last(stage) || pipeline_.own_losses;
}

RankPorts::Way& RankPorts::to(Cargo cargo, int stage, int peer) {
  for (Way* way : sending(cargo, stage)) {
    if (way->peer == peer) return *way;
  }
  throw std::logic_error("no such way to rank " + std::to_string(peer));
}

RankPorts::Place& RankPorts::place_for(Way& way, std::int64_t sample) {
  return way.places[has_slot(way.cargo) ? std::size_t(shared_.pool.slot_of(sample))
                                           : std::size_t(way.messages) % way.places.size()];
}

void RankPorts::put(Way& way, const Head& head) {
  Place& place = place_for(way, head.token.sample);
  place.head = head;
  place.head.number = way.messages++;
  place.head.sent = Clock::now();
  if (place.payload.pack && !is_empty(way.cargo, head.token))
    place.payload.pack(head.from, head.to);
  exchange_.start(way.last = place.port);
}

void RankPorts::unpack(const Way& way, Place& place) {
  if (!place.payload.unpack || is_empty(way.cargo, place.head.token)) return;
  place.payload.unpack(place.head.from, place.head.to);
}

bool RankPorts::is_sending() const {
  return std::any_of(ways_.begin(), ways_.end(),
                     [&](const auto& way) { return way->last >= 0 && !exchange_.over(way->last); });
}

bool RankPorts::all_sent() const {
  return std::all_of(ways_.begin(), ways_.end(), [&](const auto& way) {
    return !way->sends ||
           std::all_of(way->places.begin(), way->places.end(),
                       [&](const Place& place) { return exchange_.over(place.port); });
  });
}

std::vector<LinkTime> RankPorts::times() const {
  std::vector<LinkTime> all;
  for (const auto& way : ways_) {
    if (way->took.count() == 0) continue;
    all.push_back({.cargo = way->cargo,
                   .stage = way->stage,
                   .from = way->peer,
                   .to = rank(),
                   .bytes = way->bytes,
                   .apart = is_transfer(way->cargo) && way->bytes == sizeof(Head),
                   .messages = way->took.count(),
                   .ms = way->took.median_ms()});
  }
  return all;
}

Exchange::Parts RankPorts::fill(Place& place, const Way& way, int slot) {
  if (way.cargo == Cargo::turn) {
    place.payload = guard_turn(pipeline_.guard);
  } else if (way.cargo != Cargo::release) {
    place.payload = freight_.payload(way.cargo, way.stage, slot, way.sends);
  }
  Exchange::Parts parts{std::as_writable_bytes(std::span(&place.head, 1))};
  parts.insert(parts.end(), place.payload.parts.begin(), place.payload.parts.end());
  return parts;
}

void RankPorts::open(Cargo cargo, int stage, int peer, bool sends) {
  for (const auto& way : ways_) {
    if (way->cargo == cargo && way->stage == stage && way->peer == peer && way->sends == sends)
      return;
  }
  const Schedule& schedule = shared_.schedule;
  Way& way = *ways_.emplace_back(
      std::make_unique<Way>(Way{.cargo = cargo, .stage = stage, .peer = peer, .sends = sends}));
  // As many as can be in flight, so that no send waits for a place. Of gradients, which are large,
  // one more than a replica sends before it waits for all.
  const int places = cargo == Cargo::meeting ? 2 : schedule.slots() + (has_slot(cargo) ? 0 : 1);
  way.places.resize(std::size_t(places));
  way.waiting.resize(way.places.size());
  // Consecutive runs use different tags: a rank may already be in the next one.
  int tag = ((options_.run % 2) * kCargos + int(cargo)) * schedule.stages + stage;
  tag *= schedule.slots() + 1;
  for (Place& place : way.places) {
    const Exchange::Parts parts = fill(place, way, int(&place - way.places.data()));
    way.bytes = 0;
    for (const auto& part : parts) way.bytes += std::int64_t(part.size());
    place.port =
        sends ? exchange_.open_to(peer, tag, parts) : exchange_.open_from(peer, tag, parts);
    ++tag;
    of_port_.resize(std::max(of_port_.size(), std::size_t(place.port) + 1));
    of_port_[std::size_t(place.port)] = {&way, &place};
    if (!sends) exchange_.start(place.port);
  }
  if (sends) sending(cargo, stage).push_back(&way);
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
    if (takes_loss(stage)) between(Cargo::target, 0, 0, rank_of(from));
    between(Cargo::release, 0, rank_of(from), 0);
  }
}

}  // namespace millrace::engine
