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

/// A loss that is not learned from has left no gradient.
bool is_empty(Cargo cargo, const Token& token) {
  return cargo == Cargo::gradient && !token.learns;
}

}  // namespace

RankLinks::RankLinks(const RankOptions& options, Shared& shared, const PipelineOptions& pipeline)
    : exchange_(*options.exchange),
      freight_(*options.freight),
      options_(options),
      pipeline_(pipeline),
      shared_(shared),
      outgoing_(std::size_t(kCargos) * std::size_t(shared.schedule.stages)),
      heard_(std::size_t(options.exchange->ranks())),
      clocks_(options.exchange->ranks(), clock_of_this_machine()),
      targets_(new std::atomic<std::int64_t>[std::size_t(shared.schedule.slots())]),
      samples_(new std::atomic<std::int64_t>[std::size_t(shared.schedule.slots())]),
      to_show_(std::size_t(shared.schedule.slots()), Head{.token = {.sample = -1}}),
      before_(shared.monitor.tally().counts()),
      counted_(std::size_t(options.exchange->ranks())),
      finals_(std::size_t(options.exchange->ranks())) {
  for (int slot = 0; slot < shared.schedule.slots(); ++slot) targets_[slot] = samples_[slot] = -1;
  for (int rank = 0; rank < exchange_.ranks(); ++rank) {
    takes_samples_.push_back(rank != 0 && !(freight_.target_is_input() && takes_targets(rank)));
    spread_ = spread_ || (rank != 0 && has_last(0) && has_last(rank));
  }
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

bool RankLinks::sends() const {
  const std::lock_guard lock(exchange_.mutex());
  return std::any_of(ways_.begin(), ways_.end(),
                     [&](const auto& way) { return way->last >= 0 && !exchange_.over(way->last); });
}

RankLinks::Place& RankLinks::place_for(Way& way, std::int64_t sample) {
  return way.places[has_payload(way.cargo) ? std::size_t(shared_.pool.slot_of(sample))
                                           : std::size_t(way.messages) % way.places.size()];
}

bool RankLinks::put(Way& way, std::unique_lock<std::mutex>& lock, const Head& head) {
  while (!exchange_.over(place_for(way, head.token.sample).port)) {
    poll();
    if (shared_.stop.load(std::memory_order_relaxed)) return false;
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  Place& place = place_for(way, head.token.sample);
  place.head = head;
  place.head.number = way.messages++;
  place.head.sent = Clock::now();
  pack(way, place);
  exchange_.start(way.last = place.port);
  return true;
}

void RankLinks::pack(const Way& way, Place& place) {
  if (is_empty(way.cargo, place.head.token)) return;
  if (place.payload) place.payload->pack();
  if (way.cargo == Cargo::meeting) freight_.pack_gradient(place.head.from, place.bytes.data());
  if (way.cargo != Cargo::turn || !pipeline_.guard) return;
  const GuardTurn turn{pipeline_.guard->state(), pipeline_.guard->told()};
  std::memcpy(place.bytes.data(), &turn, sizeof turn);
}

void RankLinks::unpack(const Way& way, Place& place) {
  if (is_empty(way.cargo, place.head.token)) return;
  if (place.payload) place.payload->unpack();
  if (way.cargo == Cargo::meeting)
    freight_.unpack_gradient(place.head.from, place.head.to, place.bytes.data());
  if (way.cargo != Cargo::turn || !pipeline_.guard) return;
  GuardTurn turn;
  std::memcpy(&turn, place.bytes.data(), sizeof turn);
  pipeline_.guard->go_on_from(turn.state, turn.told);
}

bool RankLinks::send(Cargo cargo, int from, int to, const Token& token) {
  if (is_transfer(cargo))
    freight_.await(cargo, shared_.lowering.stage(from), shared_.pool.slot_of(token.sample));
  std::unique_lock lock(exchange_.mutex());
  Way& way = outgoing(cargo, shared_.lowering.stage(from), rank_of(to));
  Head head{.from = from, .to = to, .token = token};
  if (cargo == Cargo::activation)
    head.info = shared_.in_flight(token.sample).info;
  return put(way, lock, head);
}

void RankLinks::send_target(std::int64_t sample) {
  std::unique_lock lock(exchange_.mutex());
  const int slot = shared_.pool.slot_of(sample);
  const Head head{.token = {.sample = sample}, .info = shared_.in_flight(sample).info};
  for (Way* way : outgoing_[std::size_t(Cargo::target) * std::size_t(shared_.schedule.stages)]) {
    if (!put(*way, lock, head)) return;
  }
}

void RankLinks::send_sample(std::int64_t sample) {
  const int to = rank_of(shared_.lowering.replica_with(0, sample));
  if (!takes_samples_[std::size_t(to)]) return;
  std::unique_lock lock(exchange_.mutex());
  const SampleInfo& info = shared_.in_flight(sample).info;
  put(outgoing(Cargo::sample, 0, to), lock, {.token = {.sample = sample}, .info = info});
}

bool RankLinks::has_sample(std::int64_t sample) const {
  if (!takes_samples_[std::size_t(rank())]) return has_target(sample);
  return samples_[shared_.pool.slot_of(sample)].load(std::memory_order_acquire) == sample;
}

bool RankLinks::has_target(std::int64_t sample) const {
  return has_feed() ||
         targets_[shared_.pool.slot_of(sample)].load(std::memory_order_acquire) == sample;
}

void RankLinks::send_prediction(std::int64_t sample, float loss) {
  std::unique_lock lock(exchange_.mutex());
  const Head head{.token = {.sample = sample},
                  .loss = loss,
                  .counts = counts_of(counted_here(), pipeline_.guard)};
  if (rank() == 0) return show(head);
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
    const auto waiting = [way](std::int64_t number) -> Place*& {
      return way->waiting[std::size_t(number) % way->waiting.size()];
    };
    waiting(place->head.number) = place;
    while (Place* const next = std::exchange(waiting(way->messages), nullptr)) {
      ++way->messages;
      handle(*way, *next);
      exchange_.start(next->port);
    }
  }
  while (finished_ < exchange_.ranks() - 1) {
    const auto letter = exchange_.letter(Exchange::About::pipeline);
    if (!letter || !read(*letter)) break;
  }
}

std::optional<Clock::time_point> RankLinks::time_of_sending(int peer,
                                                            Clock::time_point by_its_clock) const {
  const std::optional<Clock::duration> ahead = clocks_.ahead(peer);
  if (!ahead) return std::nullopt;
  return std::min(by_its_clock - *ahead, Clock::now());
}

void RankLinks::handle(Way& way, Place& place) {
  const Head& head = place.head;
  Token token = head.token;
  const std::int64_t sample = token.sample;
  const std::size_t slot = std::size_t(shared_.pool.slot_of(sample));
  if (way.cargo == Cargo::activation || way.cargo == Cargo::target || way.cargo == Cargo::sample)
    know(sample, head.info);
  unpack(way, place);
  const std::optional<Clock::time_point> sent = time_of_sending(way.peer, head.sent);
  if (sent) way.took.record((Clock::now() - *sent).count());
  token.sent = sent.value_or(Clock::now());
  if (way.cargo == Cargo::release) return shared_.pool.release(sample);
  if (way.cargo == Cargo::target) return targets_[slot].store(sample, std::memory_order_release);
  if (way.cargo == Cargo::sample) return samples_[slot].store(sample, std::memory_order_release);
  if (way.cargo == Cargo::prediction) {
    ++predictions_;
    count(way.peer, head.counts);
    return show(head);
  }
  const Signal signal{kind_of(way.cargo), way.stage, sample, head.from, head.to};
  if (!shared_.channels.queue(signal).offer(token, 0us))
    throw std::logic_error("more messages than a schedule has in flight");
}

void RankLinks::know(std::int64_t sample, const SampleInfo& info) {
  SampleInfo& known = shared_.in_flight(sample).info;
  if (known.sample == info.sample) return;  // written once: others here may read it by now
  known = info;
  shared_.again[std::size_t(sample) % shared_.again.size()] = info.replayed;
}

FateCounts RankLinks::counted_here() const {
  FateCounts counts = shared_.monitor.tally().counts() - before_;
  for (const FateCounts& elsewhere : counted_) counts = counts - elsewhere;
  return counts;
}

void RankLinks::count(int rank, const LossCounts& counts) {
  FateCounts& known = counted_[std::size_t(rank)];
  shared_.monitor.tally().add(counts.fates - known);
  known = counts.fates;
  LossGuard* const guard = pipeline_.guard;
  if (guard && counts.guard.roll_backs > guard->roll_backs()) guard->mirror(counts.guard);
}

void RankLinks::show(const Head& come) {
  to_show_[std::size_t(shared_.pool.slot_of(come.token.sample))] = come;
  for (;; ++shown_) {
    const int slot = shared_.pool.slot_of(shown_);
    const Head& head = to_show_[std::size_t(slot)];
    if (head.token.sample != shown_) return;
    Sample& sample = shared_.in_flight(shown_);
    SampleInfo& info = sample.info;
    info.predicted = Clock::now();
    if (!info.replayed) shared_.monitor.predicted(info.captured, info.predicted);
    if (shared_.observer) {
      shared_.observer->shown(sample);
      shared_.observer->predicted(sample, head.loss);
    }
    shared_.pool.release(shown_);
  }
}

}  // namespace millrace::engine
