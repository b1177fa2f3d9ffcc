#include "engine/pipeline/rank_links.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <type_traits>

namespace millrace::engine {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::microseconds kRest{50};  ///< between two looks when nothing else is to do
constexpr std::chrono::milliseconds kBeat{500};
constexpr std::chrono::seconds kSilence{5};  ///< after which a rank is given up

/// What the last stage's rank has counted, for the observer's.
struct LossCounts {
  FateCounts fates;
  std::int64_t roll_backs = 0, last_sample = 0;
  double last_loss = 0, last_median = 0;
};

LossCounts counts_of(Tally& tally, const LossGuard* guard) {
  LossCounts counts{tally.counts()};
  if (guard) {
    counts.roll_backs = guard->roll_backs();
    counts.last_sample = guard->last_sample();
    counts.last_loss = guard->last_loss();
    counts.last_median = guard->last_median();
  }
  return counts;
}

void apply(const LossCounts& counts, Tally& tally, LossGuard* guard) {
  tally.set(counts.fates);
  if (guard)
    guard->mirror(counts.roll_backs, counts.last_sample, counts.last_loss, counts.last_median);
}

}  // namespace

/// What a rank says when its workers have ended.
struct RankLinks::Final {
  Outcome outcome;
  LossCounts counts;
  std::int64_t predictions = 0;
};

namespace {

/// Plain numbers as the letter's bytes: every rank runs the same build.
template <class T>
std::string bytes_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <class T>
T taken(std::string_view& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

Signal::Kind kind_of(Cargo cargo) {
  return cargo == Cargo::activation ? Signal::Kind::activation : Signal::Kind::gradient;
}

}  // namespace

std::vector<int> deal_workers(int workers, int ranks) {
  std::vector<int> rank_of_worker;
  for (int worker = 0; worker < workers; ++worker)
    rank_of_worker.push_back(int(std::int64_t(worker) * ranks / workers));
  return rank_of_worker;
}

void require_ranks(const Schedule& schedule, const std::vector<int>& rank_of_worker, int ranks) {
  const auto fail = [](const std::string& what) { throw std::invalid_argument(what); };
  const int workers = int(schedule.workers.size());
  if (ranks > workers) {
    fail(std::to_string(ranks) + " ranks: the schedule has " + std::to_string(workers) +
         " workers, so 1 to " + std::to_string(workers));
  }
  if (int(rank_of_worker.size()) != workers) {
    fail(std::to_string(rank_of_worker.size()) + " workers are dealt, the schedule has " +
         std::to_string(workers));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (std::find(rank_of_worker.begin(), rank_of_worker.end(), rank) == rank_of_worker.end())
      fail("rank " + std::to_string(rank) + " of " + std::to_string(ranks) + " has no worker");
  }
  const std::vector<int> worker_of = workers_of_replicas(schedule);
  const auto rank_of = [&](int stage, int replica) {
    return rank_of_worker[std::size_t(worker_of[std::size_t(schedule.replica_id(stage, replica))])];
  };
  for (const int rank : rank_of_worker) {
    if (rank < 0 || rank >= ranks)
      fail("rank " + std::to_string(rank) + " is none of the " + std::to_string(ranks));
  }
  if (rank_of(0, 0) != 0) fail("the first stage must be on rank 0, which has the source");
  for (int stage = 0; stage < schedule.stages; ++stage) {
    for (int replica = 1; replica < schedule.replicas_of(stage); ++replica) {
      if (rank_of(stage, replica) != rank_of(stage, 0))
        fail("the replicas of stage " + std::to_string(stage) + " must be on one rank");
    }
  }
}

struct RankLinks::Head {
  int from = 0, to = 0;  ///< replicas
  Token token;
  Clock::time_point sent;
  SampleInfo info;    ///< activation, target
  float loss = 0;     ///< prediction
  LossCounts counts;  ///< prediction
};

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
      clocks_(options.exchange->ranks()),
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

void RankLinks::beat() {
  std::unique_lock lock(exchange_.mutex());
  try {
    while (!ended_ && !closed_ && !lost_) {
      for (int rank = 0; rank < exchange_.ranks(); ++rank) {
        if (rank != this->rank()) send_beat(rank);
      }
      tell_times();
      if (rank() != 0)
        exchange_.post(0, Exchange::About::pipeline, bytes_of(options_.run) + "M" + meters());
      poll();
      look_for_losses();
      closing_.wait_for(lock, kBeat, [&] { return closed_; });
    }
  } catch (const std::exception& error) {
    lost_ = true;
    failure_ = error.what();
    shared_.stop.store(true);
  }
}

void RankLinks::send_beat(int rank) {
  exchange_.post(rank, Exchange::About::pipeline,
                 bytes_of(options_.run) + "B" + bytes_of(clocks_.beat_for(rank, Clock::now())));
}

void RankLinks::tell_times() {
  std::string all;
  for (const auto& way : ways_) {
    if (way->took.count() == 0) continue;
    const LinkTime time{.cargo = way->cargo,
                        .stage = way->stage,
                        .from = way->peer,
                        .to = rank(),
                        .bytes = std::int64_t(way->buffers.front().size()),
                        .messages = way->took.count(),
                        .ms = way->took.median_ms()};
    if (rank() == 0) exchange_.times().note(time);
    all += bytes_of(time);
  }
  if (rank() != 0) exchange_.post(0, Exchange::About::pipeline, bytes_of(options_.run) + "L" + all);
}

void RankLinks::look_for_losses() {
  for (std::size_t rank = 0; rank < heard_.size(); ++rank) {
    if (heard_[rank] == Clock::time_point{} || Clock::now() - heard_[rank] < kSilence) continue;
    lost_ = true;
    failure_ = "rank " + std::to_string(rank) +
               " is gone: nothing was heard of it for 5 s; the last checkpoint stays";
    shared_.stop.store(true);
  }
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

void RankLinks::end_of_stream(std::int64_t samples) {
  const std::lock_guard lock(exchange_.mutex());
  tell_all("E" + bytes_of(samples) + bytes_of(shared_.replays));
}

void RankLinks::fail(const std::string& what, bool lost) {
  failed_ = true;
  const std::lock_guard lock(exchange_.mutex());
  tell_all((lost ? "G" : "S") + what);
}

void RankLinks::tell_all(const std::string& letter) {
  for (int rank = 0; rank < exchange_.ranks(); ++rank) {
    if (rank != exchange_.rank())
      exchange_.post(rank, Exchange::About::pipeline, bytes_of(options_.run) + letter);
  }
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

bool RankLinks::read(const Exchange::Letter& letter) {
  std::string_view bytes = letter.text;
  if (const int run = taken<int>(bytes); run != options_.run) {
    if (run < options_.run) return true;
    // Of the next run, which another rank has begun: until this one has, too.
    exchange_.post(rank(), Exchange::About::pipeline, letter.text);
    return false;
  }
  const char kind = taken<char>(bytes);
  heard_[std::size_t(letter.from)] = kind == 'F' ? Clock::time_point{} : Clock::now();
  if (kind == 'E') {
    shared_.admitted = taken<std::int64_t>(bytes);
    shared_.replays = taken<std::int64_t>(bytes);
    shared_.applied.store(shared_.schedule.applied(shared_.admitted), std::memory_order_relaxed);
  } else if (kind == 'S' || kind == 'G') {
    lost_ = lost_ || kind == 'G';
    if (failure_.empty())
      failure_ = "rank " + std::to_string(letter.from) + ": " + std::string(bytes);
    shared_.stop.store(true);
  } else if (kind == 'B') {
    const auto beat = taken<RankClocks::Beat>(bytes);
    if (clocks_.heard(letter.from, beat, Clock::now()) && !ended_) send_beat(letter.from);
  } else if (kind == 'L') {
    while (!bytes.empty()) exchange_.times().note(taken<LinkTime>(bytes));
  } else if (kind == 'M') {
    take_meters(bytes);
  } else if (kind == 'F') {
    ++finished_;
    const auto final = taken<Final>(bytes);
    if (letter.from == last_rank()) last_ = std::make_unique<Final>(final);
    if (rank() == 0) take_meters(bytes);
  }
  return true;
}

std::string RankLinks::meters() const {
  std::string all;
  for (int replica_id = 0; replica_id < shared_.lowering.replica_ids(); ++replica_id) {
    if (here(replica_id)) all += bytes_of(replica_id) + shared_.monitor.meter(replica_id).bytes();
  }
  return all;
}

void RankLinks::take_meters(std::string_view bytes) {
  while (!bytes.empty()) {
    const int replica_id = taken<int>(bytes);
    shared_.monitor.meter(replica_id).take(bytes.substr(0, StageMeter::size_in_bytes()));
    bytes.remove_prefix(StageMeter::size_in_bytes());
  }
}

template <class Done>
void RankLinks::poll_until(std::unique_lock<std::mutex>& lock, const Done& done) {
  for (poll(); !done(); poll()) {
    look_for_losses();
    if (lost_) throw RankLost(failure_);
    lock.unlock();
    std::this_thread::sleep_for(kRest);
    lock.lock();
  }
}

Outcome RankLinks::finish(const Outcome& here) {
  if (exchange_.on_workers_ended) exchange_.on_workers_ended(failed_);
  std::unique_lock lock(exchange_.mutex());
  poll_until(lock, [&] {
    return std::all_of(outgoing_.begin(), outgoing_.end(), [&](const std::vector<Way*>& ways) {
      return std::all_of(ways.begin(), ways.end(), [&](const Way* way) {
        return std::all_of(way->ports.begin(), way->ports.end(),
                           [&](int port) { return exchange_.over(port); });
      });
    });
  });
  const bool counts = last_rank() == rank();
  const Final final{here, counts_of(shared_.monitor.tally(), pipeline_.guard), predictions_};
  if (counts) last_ = std::make_unique<Final>(final);
  ended_ = true;
  tell_times();
  tell_all("F" + bytes_of(final) + meters());
  poll_until(lock, [&] {
    const bool all_shown = rank() != 0 || counts || (last_ && predictions_ == last_->predictions);
    return finished_ == exchange_.ranks() - 1 && all_shown && exchange_.all_posted();
  });
  if (!failure_.empty()) throw std::runtime_error(failure_);
  if (!counts && rank() == 0) apply(last_->counts, shared_.monitor.tally(), pipeline_.guard);
  return last_ ? last_->outcome : Outcome{};
}

}  // namespace millrace::engine
