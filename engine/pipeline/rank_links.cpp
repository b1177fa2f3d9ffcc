#include "engine/pipeline/rank_links.h"

#include <algorithm>
#include <cmath>  // isfinite
#include <cstring>
#include <stdexcept>
#include <thread>

#include "engine/pipeline/rank_messages.h"

namespace millrace::engine {
namespace {

using namespace std::chrono_literals;

Signal::Kind kind_of(Cargo cargo) {
  return cargo == Cargo::activation ? Signal::Kind::activation : Signal::Kind::gradient;
}

}  // namespace

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

RankLinks::RankLinks(const RankOptions& options, Shared& shared, const PipelineOptions& pipeline)
    : exchange_(*options.exchange),
      freight_(*options.freight),
      options_(options),
      pipeline_(pipeline),
      shared_(shared),
      outgoing_(std::size_t(kCargos) * std::size_t(shared.schedule.stages)),
      heard_(std::size_t(options.exchange->ranks())),
      clocks_(options.exchange->ranks(), clock_of_this_machine()),
      sent_(2 * std::size_t(shared.lowering.replica_ids()) * std::size_t(shared.schedule.slots())),
      targets_(new std::atomic<std::int64_t>[std::size_t(shared.schedule.slots())]) {
  for (int slot = 0; slot < shared.schedule.slots(); ++slot) targets_[slot] = -1;
  const std::lock_guard lock(exchange_.mutex());
  open_ways();
  divert_links();
  for (int rank = 0; rank < exchange_.ranks(); ++rank) {
    if (rank != this->rank()) send_beat(rank);  // before any message, so that all can be timed
  }
  alive_ = std::thread([this] { beat(); });
}

RankLinks::~RankLinks() {
  {
    const std::lock_guard lock(exchange_.mutex());
    closed_ = true;
    closing_.notify_one();
  }
  alive_.join();
  const std::lock_guard lock(exchange_.mutex());
  exchange_.close_ports();
}

int RankLinks::rank_of(int replica_id) const {
  return options_.rank_of_worker[std::size_t(shared_.lowering.worker(replica_id))];
}

int RankLinks::last_rank() const {
  return rank_of(shared_.lowering.replica_id(shared_.schedule.stages - 1, 0));
}

bool RankLinks::takes_loss(int stage) const {
  return shared_.lowering.last(stage) || pipeline_.own_losses;
}

void RankLinks::open(Cargo cargo, int stage, int peer, bool sends) {
  std::vector<Way*>& known =
      outgoing_[std::size_t(cargo) * std::size_t(shared_.schedule.stages) + std::size_t(stage)];
  for (const auto& way : ways_) {
    const bool is_sent = std::find(known.begin(), known.end(), way.get()) != known.end();
    if (way->cargo == cargo && way->stage == stage && way->peer == peer && is_sent == sends) return;
  }
  auto way = std::make_unique<Way>(Way{.cargo = cargo, .stage = stage, .peer = peer});
  const int tag = ((options_.run % 8) * kCargos + int(cargo)) * shared_.schedule.stages + stage;
  // As many as can be under way, so that no send waits for a buffer.
  for (int i = 0; i < shared_.schedule.slots() + 1; ++i) {
    way->buffers.emplace_back(sizeof(Head) + freight_.bytes(cargo, stage));
    const std::span<std::byte> bytes(way->buffers.back());
    const int port =
        sends ? exchange_.open_to(peer, tag, bytes) : exchange_.open_from(peer, tag, bytes);
    way->ports.push_back(port);
    of_port_.resize(std::max(of_port_.size(), std::size_t(port) + 1));
    of_port_[std::size_t(port)] = {way.get(), std::size_t(i)};
    if (!sends) exchange_.start(port);
  }
  way->filled.resize(way->ports.size());
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
    }
    if (takes_loss(stage)) between(Cargo::target, 0, 0, rank_of(from));
    between(Cargo::release, 0, rank_of(from), 0);
  }
  between(Cargo::prediction, 0, last_rank(), 0);
}

void RankLinks::divert_links() {
  using Kind = Signal::Kind;
  shared_.channels.divert([&](Kind kind, int from, int to) -> Link* {
    if (!here(from) || here(to)) return nullptr;
    const Cargo cargo = kind == Kind::activation ? Cargo::activation : Cargo::gradient;
    links_.push_back(std::make_unique<OutgoingLink>(*this, cargo, from, to));
    return links_.back().get();
  });
}

RankLinks::Way& RankLinks::outgoing(Cargo cargo, int stage, int peer) {
  for (Way* way :
       outgoing_[std::size_t(cargo) * std::size_t(shared_.schedule.stages) + std::size_t(stage)]) {
    if (way->peer == peer) return *way;
  }
  throw std::logic_error("no such way to rank " + std::to_string(peer));
}

void RankLinks::progress() {
  const std::unique_lock lock(exchange_.mutex(), std::try_to_lock);
  if (lock) poll();
}

bool RankLinks::put(Way& way, std::unique_lock<std::mutex>& lock, const Head& head) {
  while (!exchange_.over(way.ports[way.next])) {
    poll();
    if (shared_.stop.load(std::memory_order_relaxed)) return false;
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  std::vector<std::byte>& buffer = way.buffers[way.next];
  Head stamped = head;
  stamped.sent = Clock::now();
  std::memcpy(buffer.data(), &stamped, sizeof stamped);
  freight_.pack(way.cargo, way.stage, shared_.pool.slot_of(head.token.sample),
                buffer.data() + sizeof head);
  exchange_.start(way.ports[way.next]);
  way.next = (way.next + 1) % way.ports.size();
  return true;
}

bool RankLinks::send(Cargo cargo, int from, int to, const Token& token) {
  freight_.await(cargo, shared_.lowering.stage(from), shared_.pool.slot_of(token.sample));
  std::unique_lock lock(exchange_.mutex());
  Way& way = outgoing(cargo, shared_.lowering.stage(from), rank_of(to));
  Head head{.from = from, .to = to, .token = token};
  if (cargo == Cargo::activation)
    head.info = shared_.infos[std::size_t(shared_.pool.slot_of(token.sample))];
  return put(way, lock, head);
}

void RankLinks::send_target(std::int64_t sample) {
  std::unique_lock lock(exchange_.mutex());
  const int slot = shared_.pool.slot_of(sample);
  const Head head{.token = {.sample = sample}, .info = shared_.infos[std::size_t(slot)]};
  for (Way* way : outgoing_[std::size_t(Cargo::target) * std::size_t(shared_.schedule.stages)]) {
    if (!put(*way, lock, head)) return;
  }
}

bool RankLinks::has_target(std::int64_t sample) const {
  return has_feed() ||
         targets_[shared_.pool.slot_of(sample)].load(std::memory_order_acquire) == sample;
}

void RankLinks::send_prediction(std::int64_t sample, float loss) {
  std::unique_lock lock(exchange_.mutex());
  const Head head{.token = {.sample = sample},
                  .loss = loss,
                  .counts = counts_of(shared_.monitor.tally(), pipeline_.guard)};
  if (put(outgoing(Cargo::prediction, 0, 0), lock, head)) ++predictions_;
}

void RankLinks::release(std::int64_t sample) {
  std::unique_lock lock(exchange_.mutex());
  put(outgoing(Cargo::release, 0, 0), lock, {.token = {.sample = sample}});
}

void RankLinks::agree(int stage, bool& learned, Alarm& alarm) {
  if (exchange_.copies.count > 1) meet_copies(stage, learned, alarm);
  if (!exchange_.add_up_parts) return;
  const std::vector<float>& gradient = freight_.gradient(stage, 0);
  const bool finite =
      std::all_of(gradient.begin(), gradient.end(), [](float one) { return std::isfinite(one); });
  float astray = finite ? 0 : 1;  // how many parts are
  exchange_.add_up_parts({&astray, 1}, stage);
  if (astray > 0) alarm = std::max(alarm, Alarm::discard);
}

void RankLinks::meet_copies(int stage, bool& learned, Alarm& alarm) {
  const Exchange::Copies& copies = exchange_.copies;
  constexpr std::size_t kVotes = 3;
  std::vector<float>& numbers = freight_.gradient(stage, kVotes);
  float* const votes = numbers.data() + numbers.size() - kVotes;
  votes[0] = learned;
  votes[1] = alarm == Alarm::discard;
  votes[2] = alarm == Alarm::roll_back;
  copies.add_up(numbers, stage);
  learned = votes[0] == float(copies.count);
  alarm = votes[2] > 0 ? Alarm::roll_back : votes[1] > 0 ? Alarm::discard : Alarm::none;
  freight_.set_gradient(stage, copies.count);
}

void RankLinks::poll() {
  for (int port; (port = exchange_.arrived()) >= 0;) {
    const auto [way, place] = of_port_[std::size_t(port)];
    way->filled[place] = 1;
    while (way->filled[way->next]) {
      const std::size_t now = way->next;
      way->filled[now] = 0;
      way->next = (now + 1) % way->ports.size();
      handle(*way, way->buffers[now].data());
      exchange_.start(way->ports[now]);
    }
  }
  while (finished_ < exchange_.ranks() - 1) {
    const auto letter = exchange_.letter(Exchange::About::pipeline);
    if (!letter || !read(*letter)) break;
  }
}

Clock::time_point RankLinks::time_of_sending(Way& way, Clock::time_point by_its_clock) {
  const Clock::time_point now = Clock::now();
  const std::optional<Clock::duration> ahead = clocks_.ahead(way.peer);
  if (!ahead) return now;
  const Clock::time_point sent = std::min(by_its_clock - *ahead, now);
  way.took.record((now - sent).count());
  return sent;
}

std::size_t RankLinks::place_of(const Signal& need) const {
  const bool goes_back = need.kind == Signal::Kind::gradient;
  return (2 * std::size_t(need.to) + (goes_back ? 1 : 0)) * std::size_t(shared_.schedule.slots()) +
         std::size_t(shared_.pool.slot_of(need.sample));
}

void RankLinks::handle(Way& way, const std::byte* bytes) {
  Head head;
  std::memcpy(static_cast<void*>(&head), bytes, sizeof head);
  const std::byte* const payload = bytes + sizeof head;
  const Clock::time_point sent = time_of_sending(way, head.sent);
  const std::int64_t sample = head.token.sample;
  const std::size_t slot = std::size_t(shared_.pool.slot_of(sample));
  if (way.cargo == Cargo::release) return shared_.pool.release(sample);
  if (way.cargo == Cargo::activation || way.cargo == Cargo::target) {
    // Written once: others here may read it by now.
    if (shared_.infos[slot].sample != head.info.sample) {
      shared_.infos[slot] = head.info;
      shared_.again[std::size_t(sample) % shared_.again.size()] = head.info.replayed;
    }
  }
  freight_.unpack(way.cargo, way.stage, int(slot), payload);
  if (way.cargo == Cargo::target) return targets_[slot].store(sample, std::memory_order_release);
  if (way.cargo == Cargo::prediction) return shown(head);
  const Signal signal{kind_of(way.cargo), way.stage, sample, head.from, head.to};
  sent_[place_of(signal)] = sent;
  if (!shared_.channels.queue(signal).offer(head.token, 0us))
    throw std::logic_error("more messages than a schedule has in flight");
}

void RankLinks::shown(const Head& head) {
  const int slot = shared_.pool.slot_of(head.token.sample);
  SampleInfo& info = shared_.infos[std::size_t(slot)];
  info.predicted = Clock::now();
  if (!info.replayed) shared_.monitor.predicted(info.captured, info.predicted);
  apply(head.counts, shared_.monitor.tally(), pipeline_.guard);
  if (shared_.observer) {
    shared_.observer->shown(info, slot);
    shared_.observer->predicted(info, slot, head.loss);
  }
  ++predictions_;
  shared_.pool.release(head.token.sample);
}

}  // namespace millrace::engine
