// Which ways there are between ranks, and which of the schedule's links go by them.
#include <algorithm>
#include <memory>

#include "engine/pipeline/rank_messages.h"

namespace millrace::engine {

class RankLinks::OutgoingLink final : public Link {
 public:
  OutgoingLink(RankLinks& links, Cargo cargo, int from, int to)
      : links_(links), cargo_(cargo), from_(from), to_(to) {}
  bool offer(const Token& token, std::chrono::microseconds) override {
    return links_.send(cargo_, from_, to_, token);
  }

 private:
  RankLinks& links_;
  const Cargo cargo_;
  const int from_, to_;
};

int RankLinks::rank_of(int replica_id) const {
  return options_.rank_of_worker[std::size_t(shared_.lowering.worker(replica_id))];
}

bool RankLinks::has_last(int rank) const {
  const int last = shared_.schedule.stages - 1;
  for (int replica = 0; replica < shared_.lowering.replicas(last); ++replica) {
    if (rank_of(shared_.lowering.replica_id(last, replica)) == rank) return true;
  }
  return false;
}

bool RankLinks::takes_loss(int stage) const {
  return shared_.lowering.last(stage) || pipeline_.own_losses;
}

bool RankLinks::takes_targets(int rank) const {
  for (int replica_id = 0; replica_id < shared_.lowering.replica_ids(); ++replica_id) {
    if (rank_of(replica_id) == rank && takes_loss(shared_.lowering.stage(replica_id))) return true;
  }
  return false;
}

Exchange::Parts RankLinks::fill(Place& place, const Way& way, int slot, bool sends) {
  Exchange::Parts parts{std::as_writable_bytes(std::span(&place.head, 1))};
  if (has_payload(way.cargo)) {
    place.payload = freight_.payload(way.cargo, way.stage, slot, sends);
    const Exchange::Parts carried = place.payload->parts();
    parts.insert(parts.end(), carried.begin(), carried.end());
  } else if (way.cargo != Cargo::release) {
    place.bytes.resize(way.cargo == Cargo::meeting ? freight_.gradient_bytes(way.stage)
                                                   : sizeof(GuardTurn));
    parts.emplace_back(place.bytes);
  }
  return parts;
}

void RankLinks::open(Cargo cargo, int stage, int peer, bool sends) {
  const Schedule& schedule = shared_.schedule;
  std::vector<Way*>& known =
      outgoing_[std::size_t(cargo) * std::size_t(schedule.stages) + std::size_t(stage)];
  for (const auto& way : ways_) {
    const bool is_sent = std::find(known.begin(), known.end(), way.get()) != known.end();
    if (way->cargo == cargo && way->stage == stage && way->peer == peer && is_sent == sends) return;
  }
  auto way = std::make_unique<Way>(Way{.cargo = cargo, .stage = stage, .peer = peer});
  // As many as can be under way, so that no send waits for a place; of gradients, which are large,
  // one more than who waits for them all has to send.
  const int places = cargo == Cargo::meeting ? 2 : schedule.slots() + (has_payload(cargo) ? 0 : 1);
  way->places.resize(std::size_t(places));
  way->waiting.resize(way->places.size());
  // Two runs in a row have tags of their own: a rank may be in the next one already.
  int tag = ((options_.run % 2) * kCargos + int(cargo)) * schedule.stages + stage;
  tag *= schedule.slots() + 1;
  for (Place& place : way->places) {
    const Exchange::Parts parts = fill(place, *way, int(&place - way->places.data()), sends);
    way->bytes = 0;
    for (const auto& part : parts) way->bytes += std::int64_t(part.size());
    place.port =
        sends ? exchange_.open_to(peer, tag, parts) : exchange_.open_from(peer, tag, parts);
    ++tag;
    of_port_.resize(std::max(of_port_.size(), std::size_t(place.port) + 1));
    of_port_[std::size_t(place.port)] = {way.get(), &place};
    if (!sends) exchange_.start(place.port);
  }
  if (sends) known.push_back(way.get());
  ways_.push_back(std::move(way));
}

void RankLinks::open_ways() {
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
    if (stage == 0 && takes_samples_[std::size_t(rank_of(from))])
      between(Cargo::sample, 0, 0, rank_of(from));
    if (lowering.last(stage)) between(Cargo::prediction, 0, rank_of(from), 0);
    if (takes_loss(stage)) between(Cargo::target, 0, 0, rank_of(from));
    between(Cargo::release, 0, rank_of(from), 0);
  }
}

void RankLinks::divert_links() {
  using Kind = Signal::Kind;
  shared_.channels.divert([&](Kind kind, int from, int to) -> Link* {
    if (!here(from) || here(to)) return nullptr;
    if (kind == Kind::admission) return nullptr;  // rank 0 admits, whoever works on the sample
    for (const Cargo cargo : {Cargo::activation, Cargo::gradient, Cargo::meeting, Cargo::turn}) {
      if (kind_of(cargo) != kind) continue;
      links_.push_back(std::make_unique<OutgoingLink>(*this, cargo, from, to));
      return links_.back().get();
    }
    return nullptr;
  });
}

}  // namespace millrace::engine
