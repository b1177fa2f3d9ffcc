#include <algorithm>
#include <cmath>

#include "engine/pipeline/rank_gateway.h"

namespace millrace::engine {
namespace {

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
    fail(std::to_string(rank_of_worker.size()) +
         " workers are assigned to ranks, but the schedule has " + std::to_string(workers));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (std::find(rank_of_worker.begin(), rank_of_worker.end(), rank) == rank_of_worker.end())
      fail("rank " + std::to_string(rank) + " of " + std::to_string(ranks) + " has no worker");
  }
  for (const int rank : rank_of_worker) {
    if (rank < 0 || rank >= ranks)
      fail("rank " + std::to_string(rank) +
           " is out of range; number of ranks: " + std::to_string(ranks));
  }
  if (rank_of_worker[std::size_t(workers_of_replicas(schedule).front())] != 0)
    fail("the first stage must be on rank 0, which has the source");
}

std::vector<std::pair<std::string, std::function<void()>>> RankGateway::threads() {
  std::vector<std::pair<std::string, std::function<void()>>> all;
  for (int replica = 0; admits() && replica < shared_.schedule().replicas_of(0); ++replica) {
    const int replica_id = shared_.schedule().replica_id(0, replica);
    if (!ports_.here(replica_id))
      all.emplace_back("samples of " + std::to_string(replica_id), [=, this] { deal(replica_id); });
  }
  return all;
}

void RankGateway::deal(int replica_id) {
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
    TokenQueue& turn = shared_.channels.queue(
        {Kind::admission, 0, sample - 1, lowering.replica_with(0, sample - 1), replica_id});
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
        .link({Kind::admission, 0, sample, replica_id, lowering.replica_with(0, sample + 1)})
        .send({.sample = sample}, over);
  }
}

void RankGateway::agree(int stage, Fate& fate, Alarm& alarm) {
  if (exchange_.copies.count > 1) meet_copies(exchange_.copies, freight_, stage, fate, alarm);
  if (!exchange_.add_up_parts) return;
  const std::vector<float>& gradient = freight_.gradient(stage, 0);
  float astray =
      std::ranges::all_of(gradient, [](float one) { return std::isfinite(one); }) ? 0 : 1;
  exchange_.add_up_parts({&astray, 1}, stage);
  if (astray > 0) alarm = std::max(alarm, Alarm::discard);
}

}  // namespace millrace::engine
