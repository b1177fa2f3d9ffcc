// A trainer as one of several ranks.
#include "engine/trainer/trainer_ranks.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <stdexcept>
#include <thread>

#include "engine/trainer/state_bytes.h"
#include "engine/trainer/tensor_freight.h"
#include "engine/trainer/trainer.h"

namespace millrace::engine {
namespace {

using About = Exchange::About;

constexpr std::chrono::microseconds kRest{200};

constexpr std::chrono::seconds kMost{30};

/// Waits for `step` to be true, which is asked under the exchange's mutex. Throws RankLost if it
/// does not come true.
template <class Step>
void await(Exchange& exchange, const Step& step) {
  for (const auto began = Clock::now(); Clock::now() - began < kMost;) {
    {
      const std::lock_guard lock(exchange.mutex());
      if (step()) return;
    }
    std::this_thread::sleep_for(kRest);
  }
  throw RankLost("a rank is gone: nothing was heard of it for 30 s");
}

void post_to_all(Exchange& exchange, const std::string& text) {
  {
    const std::lock_guard lock(exchange.mutex());
    for (int rank = 0; rank < exchange.ranks(); ++rank) {
      if (rank != exchange.rank()) exchange.post(rank, About::state, text);
    }
  }
  await(exchange, [&] { return exchange.all_posted(); });
}

/// The stages of the workers of `rank`.
std::set<int> stages_on(const Schedule& schedule, const std::vector<int>& rank_of_worker,
                        int rank) {
  std::set<int> stages;
  for (std::size_t worker = 0; worker < schedule.workers.size(); ++worker) {
    if (rank_of_worker[worker] != rank) continue;
    for (const int stage : stages_of(schedule.workers[worker])) stages.insert(stage);
  }
  return stages;
}

}  // namespace

void tell_of_cut(Exchange& exchange, const std::vector<int>& cut, const stages::StateDict& weights,
                 std::int64_t roll_backs) {
  std::string text = "C";
  text.append(reinterpret_cast<const char*>(&roll_backs), sizeof roll_backs);
  for (const int place : cut) text.append(reinterpret_cast<const char*>(&place), sizeof place);
  post_to_all(exchange, text + to_bytes(weights));
}

void Trainer::check_ranks() {
  Exchange& exchange = *options_.exchange;
  std::vector<int>& ranks = options_.rank_of_worker;
  if (ranks.empty()) ranks = deal_workers(int(schedule_.workers.size()), exchange.ranks());
  require_ranks(schedule_, ranks, exchange.ranks());
  if (options_.late_targets) throw std::invalid_argument("ranks have no targets that come late");
  // What other ranks hand over comes and goes through host memory, as to and from a core.
  const std::vector<int> worker_of = workers_of_replicas(schedule_);
  for (std::size_t replica_id = 0; replica_id < options_.devices.size(); ++replica_id) {
    if (ranks[std::size_t(worker_of[replica_id])] != exchange.rank())
      options_.devices[replica_id] = {};
  }
  freight_ = std::make_unique<TensorFreight>(
      options_, samples_, boundaries_, [this](int stage) -> const capture::StageStep& {
        return *steps_[std::size_t(schedule_.replica_id(stage, 0))];
      });
}

void Trainer::gather() {
  Exchange& exchange = *options_.exchange;
  const auto mine = [&](int rank) { return stages_on(schedule_, options_.rank_of_worker, rank); };
  if (exchange.rank() != 0) {
    stages::StateDict all;
    for (const int stage : mine(exchange.rank())) {
      for (auto& entry : checkpoint(stage)) all.push_back(std::move(entry));
    }
    {
      const std::lock_guard lock(exchange.mutex());
      exchange.post(0, About::state, to_bytes(all));
    }
    return await(exchange, [&] { return exchange.all_posted(); });
  }
  for (int waited = exchange.ranks() - 1; waited > 0; --waited) {
    std::optional<Exchange::Letter> letter;
    await(exchange, [&] { return (letter = exchange.letter(About::state)).has_value(); });
    const stages::StateDict state = state_of(letter->text);
    for (const int stage : mine(letter->from)) {
      for (int replica = 0; replica < schedule_.replicas_of(stage); ++replica)
        steps_[std::size_t(schedule_.replica_id(stage, replica))]->stage().restore(state);
    }
  }
}

void Trainer::dismiss_ranks() {
  if (options_.exchange) post_to_all(*options_.exchange, "E");
}

bool Trainer::follow() {
  Exchange& exchange = *options_.exchange;
  std::optional<Exchange::Letter> letter;
  await(exchange, [&] { return (letter = exchange.letter(About::state)).has_value(); });
  std::string_view bytes = letter->text;
  if (bytes.front() == 'E') return false;
  bytes.remove_prefix(1);
  std::int64_t roll_backs = 0;
  std::memcpy(&roll_backs, bytes.data(), sizeof roll_backs);
  bytes.remove_prefix(sizeof roll_backs);
  guard_.mirror(roll_backs, guard_.last_sample(), guard_.last_loss(), guard_.last_median());
  std::vector<int> cut(std::size_t(options_.stages - 1));
  std::memcpy(cut.data(), bytes.data(), cut.size() * sizeof(int));
  bytes.remove_prefix(cut.size() * sizeof(int));
  recut(cut, state_of(bytes));
  return true;
}

}  // namespace millrace::engine
