#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/pipeline/gateway.h"
#include "engine/pipeline/rank_letters.h"
#include "engine/pipeline/rank_ports.h"

namespace millrace::engine {
namespace {

/// Messages that carry tokens. Admissions need none: rank 0 admits every sample.
constexpr std::pair<Signal::Kind, Cargo> kTokens[] = {{Signal::Kind::activation, Cargo::activation},
                                                      {Signal::Kind::gradient, Cargo::gradient},
                                                      {Signal::Kind::meeting, Cargo::meeting},
                                                      {Signal::Kind::prediction, Cargo::turn}};

void meet_copies(const Exchange::Copies& copies, Freight& freight, int stage, Fate& fate,
                 Alarm& alarm) {
  constexpr std::size_t kVotes = 3;
  std::vector<float>& numbers = freight.gradient(stage, kVotes);
  float* const votes = numbers.data() + numbers.size() - kVotes;
  votes[0] = fate == Fate::trained;
  votes[1] = alarm == Alarm::discard;
  votes[2] = alarm == Alarm::roll_back;
  copies.add_up(numbers, stage);
  if (fate == Fate::trained && votes[0] != float(copies.count)) fate = Fate::predicted_only;
  alarm = votes[2] > 0 ? Alarm::roll_back : votes[1] > 0 ? Alarm::discard : Alarm::none;
  freight.set_gradient(stage, copies.count);
}

/// The gateway of a pipeline shared by several processes. Rank 0 has the feed and the observer; the
/// others get samples from it and send it predictions. Tokens between ranks go by messages. Waiting
/// workers make progress for all; an extra thread only sends two heartbeats a second. Thread-safe.
class RankGateway final : public Gateway {
 public:
  /// `shared`, of a pipeline over ranks, must outlive this.
  explicit RankGateway(Shared& shared)
      : Gateway(shared),
        ranks_(*shared.pipeline.ranks),
        exchange_(*ranks_.exchange),
        freight_(*ranks_.freight),
        ports_(shared),
        letters_(shared, ports_),
        targets_(new std::atomic<std::int64_t>[std::size_t(shared.schedule().slots())]),
        samples_(new std::atomic<std::int64_t>[std::size_t(shared.schedule().slots())]),
        to_show_(std::size_t(shared.schedule().slots())),
        counted_(std::size_t(exchange_.ranks())) {
    for (int slot = 0; slot < shared.schedule().slots(); ++slot)
      targets_[slot] = samples_[slot] = -1;
    for (int rank = 1; rank < exchange_.ranks(); ++rank)
      spread_ = spread_ || (ports_.has_last(0) && ports_.has_last(rank));
    for (const auto& [kind, carrier] : kTokens) {
      shared_.channels.divert(kind, [&, cargo = carrier](int from, int to) -> Channel::Elsewhere {
        if (!ports_.here(from) || ports_.here(to)) return nullptr;
        return [=, this](const Token& token) { return send(cargo, from, to, token); };
      });
    }
    {
      const std::lock_guard lock(exchange_.mutex());
      letters_.beat();  // before any message, so that all can be timed
    }
    alive_ = std::thread([this] { keep_alive(); });
  }
  ~RankGateway() override {
    {
      const std::lock_guard lock(exchange_.mutex());
      closed_ = true;
      closing_.notify_one();
    }
    alive_.join();
  }

  bool runs(int worker) const override {
    return ranks_.rank_of_worker[std::size_t(worker)] == exchange_.rank();
  }
  std::vector<std::pair<std::string, std::function<void()>>> threads() override {
    std::vector<std::pair<std::string, std::function<void()>>> all;
    for (int replica = 0; admits() && replica < shared_.schedule().replicas_of(0); ++replica) {
      const int replica_id = shared_.schedule().replica_id(0, replica);
      if (!ports_.here(replica_id))
        all.emplace_back("samples of " + std::to_string(replica_id),
                         [=, this] { deal(replica_id); });
    }
    return all;
  }
  /// Messages progress only while somebody polls, and ranks may share a core: a worker sleeps for
  /// as long as earlier waits at the same action lasted, then polls often.
  std::chrono::microseconds patience(const Wait& wait, std::chrono::microseconds own) override {
    using std::chrono::microseconds;
    // Rank 0 shows the predictions of other ranks, so it polls more often.
    constexpr microseconds kShows{100}, kRests{2000};
    // A sleep overshoots by as much as a message takes, so none begins while a token is due.
    constexpr std::chrono::milliseconds kLooks{5};
    const Clock::time_point now = Clock::now();
    const Clock::duration early = wait.due - now;
    if (early > kImpatience && own == kPatience && !is_sending())
      return std::min(admits() ? kShows : kRests, std::chrono::duration_cast<microseconds>(early));
    if (now - (early > kImpatience ? wait.since : wait.due) > kLooks) return kImpatience;
    std::this_thread::yield();
    return microseconds(0);
  }
  /// Handles arrived messages; returns at once if another thread is doing so.
  void progress() override {
    const Lock lock(exchange_.mutex(), std::try_to_lock);
    if (lock) receive();
  }

  bool admits() const override { return exchange_.rank() == 0; }
  bool acquire(std::int64_t sample, std::chrono::microseconds patience) override {
    if (admits()) return Gateway::acquire(sample, patience);
    const Arrivals& inputs = ports_.takes_samples(exchange_.rank()) ? samples_ : targets_;
    if (inputs[shared_.pool.slot_of(sample)].load(std::memory_order_acquire) == sample) return true;
    if (patience.count() > 0) std::this_thread::sleep_for(patience);
    return false;
  }
  Feed::Status poll(std::int64_t sample, std::chrono::microseconds patience) override {
    return admits() ? Gateway::poll(sample, patience) : Feed::Status::ready;
  }
  void take(std::int64_t sample, Clock::time_point asked) override {
    if (!admits()) return;  // rank 0 has filled the slot
    Gateway::take(sample, asked);
    Lock lock(exchange_.mutex());
    const Head head{.token = {.sample = sample}, .info = shared_.in_flight(sample).info};
    for (const auto& route : ports_.routes()) {
      if (route->sends && route->cargo == Cargo::target && !put(*route, lock, head)) return;
    }
  }
  bool has_target(std::int64_t sample) const override {
    return admits() ||
           targets_[shared_.pool.slot_of(sample)].load(std::memory_order_acquire) == sample;
  }
  void shown(std::int64_t sample) override {
    if (!shows_in_turn()) Gateway::shown(sample);
  }
  void predicted(std::int64_t sample, float loss) override {
    if (!shows_in_turn()) return Gateway::predicted(sample, loss);
    Lock lock(exchange_.mutex());
    if (admits()) return show(sample, loss);
    const Head head{.token = {.sample = sample}, .loss = loss, .counts = counted_here()};
    if (put(ports_.to(Cargo::prediction, 0, 0), lock, head)) ++predictions_;
  }
  void release(std::int64_t sample) override {
    if (admits()) return Gateway::release(sample);
    Lock lock(exchange_.mutex());
    put(ports_.to(Cargo::release, 0, 0), lock, {.token = {.sample = sample}});
  }
  /// Between copies of the pipeline: the gradient becomes the mean of theirs, applied only if all
  /// are trained, and the most severe alarm applies to all. Where ranks share modules: a gradient
  /// that is not finite on one is discarded by all. Blocks until all have called it.
  void agree(int stage, Fate& fate, Alarm& alarm) override {
    if (exchange_.copies.count > 1) meet_copies(exchange_.copies, freight_, stage, fate, alarm);
    if (!exchange_.add_up_parts) return;
    const std::vector<float>& gradient = freight_.gradient(stage, 0);
    float astray =
        std::ranges::all_of(gradient, [](float one) { return std::isfinite(one); }) ? 0 : 1;
    exchange_.add_up_parts({&astray, 1}, stage);
    if (astray > 0) alarm = std::max(alarm, Alarm::discard);
  }
  void fail(const std::exception& error) override {
    const std::lock_guard lock(exchange_.mutex());
    letters_.fail(error.what(), dynamic_cast<const RankLost*>(&error) != nullptr);
  }
  /// Throws std::runtime_error, "rank N: ...", if a rank failed; RankLost if one is silent for 5 s.
  FateCounts finish() override {
    Lock lock(exchange_.mutex());
    const bool failed = letters_.has_failed();
    lock.unlock();
    if (exchange_.on_workers_ended) exchange_.on_workers_ended(failed);
    lock.lock();
    receive_until(lock, [&] { return ports_.all_sent(); });
    letters_.end({counted_here(), predictions_});
    receive_until(lock,
                  [&] { return letters_.all_ended() && (!admits() || all_predictions_came()); });
    if (!letters_.failure().empty()) throw std::runtime_error(letters_.failure());
    FateCounts all;
    for (int rank = 0; rank < exchange_.ranks(); ++rank) {
      const std::optional<RankLetters::Final>& last = letters_.final(rank);
      if (!last) continue;
      if (admits() && rank != 0) count(rank, last->counts);
      if (shared_.pipeline.guard) shared_.pipeline.guard->mirror(last->counts.guard);
      all += last->counts.fates;
    }
    return all;
  }

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Head = RankPorts::Head;
  using Route = RankPorts::Route;

  void end_of_stream(std::int64_t samples) override {
    Gateway::end_of_stream(samples);
    if (exchange_.on_end_of_stream) exchange_.on_end_of_stream();
    const std::lock_guard lock(exchange_.mutex());
    letters_.end_of_stream(samples);
  }
  /// On rank 0: admits the samples of a stage 0 replica on another rank and sends them there.
  void deal(int replica_id) {
    using Kind = Signal::Kind;
    const Lowering& lowering = shared_.lowering;
    const int to = ports_.rank_of(replica_id);
    for (std::int64_t sample = replica_id;; sample += lowering.replicas(0)) {
      const auto over = [&] { return shared_.over(sample); };
      const auto await = [&](const auto& attempt) {
        while (!attempt()) {
          if (over()) return false;
        }
        return true;
      };
      Token token;
      TokenQueue& turn = *shared_.channels
                              .of({Kind::admission, 0, sample - 1,
                                   lowering.replica_with(0, sample - 1), replica_id})
                              .queue;
      if (!await([&] { return turn.receive(token, kPatience); })) return;
      if (!await([&] { return shared_.pool.acquire(sample, kPatience); })) return;
      const Clock::time_point asked = Clock::now();
      if (!await([&] { return Gateway::poll(sample, kPatience) == Feed::Status::ready; })) return;
      take(sample, asked);
      if (ports_.takes_samples(to)) {
        Lock lock(exchange_.mutex());
        put(ports_.to(Cargo::sample, 0, to), lock,
            {.token = {.sample = sample}, .info = shared_.in_flight(sample).info});
      }
      shared_.channels
          .of({Kind::admission, 0, sample, replica_id, lowering.replica_with(0, sample + 1)})
          .send({.sample = sample}, over);
    }
  }
  bool send(Cargo cargo, int from, int to, const Token& token) {
    const int stage = shared_.lowering.stage(from);
    if (is_transfer(cargo)) freight_.await(cargo, stage, shared_.pool.slot_of(token.sample));
    Lock lock(exchange_.mutex());
    Head head{.from = from, .to = to, .token = token};
    if (cargo == Cargo::activation) head.info = shared_.in_flight(token.sample).info;
    return put(ports_.to(cargo, stage, ports_.rank_of(to)), lock, head);
  }
  /// Whether a message sent here still needs progress.
  bool is_sending() {
    const std::lock_guard lock(exchange_.mutex());
    return ports_.is_sending();
  }
  void keep_alive() {
    Lock lock(exchange_.mutex());
    try {
      while (!letters_.has_ended() && !closed_ && !letters_.is_lost()) {
        letters_.beat();
        letters_.report();
        receive();
        letters_.look_for_losses();
        closing_.wait_for(lock, RankPulse::kBeat, [&] { return closed_; });
      }
    } catch (const std::exception& error) {
      letters_.give_up(error.what(), true);
    }
  }
  /// Whether this rank's predictions are shown in order with those of other ranks, on rank 0.
  bool shows_in_turn() const { return !admits() || spread_; }

  // Under the mutex.
  /// False: the run was stopped meanwhile.
  bool put(Route& route, Lock& lock, const Head& head) {
    while (!ports_.is_free(route, head.token.sample)) {
      receive();
      if (shared_.stop.load(std::memory_order_relaxed)) return false;
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
    ports_.put(route, head);
    return true;
  }
  void receive() {
    ports_.receive([this](Route& route, RankPorts::Buffer& buffer) { handle(route, buffer); });
    letters_.read();
  }
  void handle(Route& route, RankPorts::Buffer& buffer) {
    const Head& head = buffer.head;
    const std::int64_t sample = head.token.sample;
    const std::size_t slot = std::size_t(shared_.pool.slot_of(sample));
    if (route.cargo == Cargo::activation || route.cargo == Cargo::target ||
        route.cargo == Cargo::sample)
      know(sample, head.info);
    ports_.unpack(route, buffer);
    const std::optional<Clock::time_point> sent = letters_.here(route.peer, head.sent);
    if (sent) route.took.record((Clock::now() - *sent).count());
    if (route.cargo == Cargo::release) return shared_.pool.release(sample);
    if (route.cargo == Cargo::target)
      return targets_[slot].store(sample, std::memory_order_release);
    if (route.cargo == Cargo::sample)
      return samples_[slot].store(sample, std::memory_order_release);
    if (route.cargo == Cargo::prediction) {
      ++predictions_;
      count(route.peer, head.counts);
      return show(sample, head.loss);
    }
    Token token = head.token;
    token.sent = sent.value_or(Clock::now());
    const auto tokens =
        std::ranges::find(kTokens, route.cargo, [](const auto& of) { return of.second; });
    const Signal signal{tokens->first, route.stage, sample, head.from, head.to};
    if (!shared_.channels.of(signal).queue->offer(token, std::chrono::microseconds(0)))
      throw std::logic_error("more messages than a schedule has in flight");
  }
  template <class Done>
  void receive_until(Lock& lock, const Done& done) {
    for (receive();; receive()) {
      letters_.look_for_losses();
      // first: ranks that have ended are no longer watched for losses
      if (letters_.is_lost()) throw RankLost(letters_.failure());
      if (done()) return;
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      lock.lock();
    }
  }
  void know(std::int64_t sample, const SampleInfo& info) {
    SampleInfo& known = shared_.in_flight(sample).info;
    if (known.sample == info.sample) return;  // written once: other threads may be reading it
    known = info;
  }
  /// On rank 0, after all earlier samples.
  void show(std::int64_t sample, float loss) {
    to_show_[std::size_t(shared_.pool.slot_of(sample))] = {sample, loss};
    for (;; ++shown_) {
      const ToShow next = to_show_[std::size_t(shared_.pool.slot_of(shown_))];
      if (next.sample != shown_) return;
      shared_.in_flight(shown_).info.predicted = Clock::now();
      Gateway::shown(shown_);
      Gateway::predicted(shown_, next.loss);
      Gateway::release(shown_);
    }
  }
  /// In this run.
  LossCounts counted_here() const {
    FateCounts counts = counts_since_construction();
    for (const FateCounts& elsewhere : counted_) counts = counts - elsewhere;
    return {counts,
            shared_.pipeline.guard ? shared_.pipeline.guard->status() : LossGuard::Status()};
  }
  void count(int rank, const LossCounts& counts) {
    FateCounts& known = counted_[std::size_t(rank)];
    shared_.pipeline.monitor.tally().add(counts.fates - known);
    known = counts.fates;
    if (shared_.pipeline.guard) shared_.pipeline.guard->mirror(counts.guard);
  }
  bool all_predictions_came() const {
    std::int64_t sent = 0;
    for (int rank = 1; rank < exchange_.ranks(); ++rank) {
      if (!ports_.has_last(rank)) continue;
      const std::optional<RankLetters::Final>& last = letters_.final(rank);
      if (!last) return false;
      sent += last->predictions;
    }
    return predictions_ == sent;
  }

  /// [slot]: the latest sample with which a message has filled it.
  using Arrivals = std::unique_ptr<std::atomic<std::int64_t>[]>;
  struct ToShow {
    std::int64_t sample = -1;
    float loss = 0;
  };

  const RankOptions& ranks_;
  Exchange& exchange_;
  Freight& freight_;
  RankPorts ports_;
  RankLetters letters_;
  Arrivals targets_, samples_;
  bool spread_ = false;              ///< rank 0 and others have the last stage
  std::int64_t predictions_ = 0;     ///< sent or received
  std::vector<ToShow> to_show_;      ///< [slot]
  std::int64_t shown_ = 0;           ///< samples
  std::vector<FateCounts> counted_;  ///< [rank], as far as known here
  std::condition_variable_any closing_;
  bool closed_ = false;
  std::thread alive_;
};

}  // namespace

std::unique_ptr<Gateway> make_rank_gateway(Shared& shared) {
  return std::make_unique<RankGateway>(shared);
}

}  // namespace millrace::engine
