// A trainer as one of several ranks.
#include "engine/trainer/trainer_ranks.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>

#include "engine/pipeline/rank_messages.h"
#include "engine/trainer/rank_wires.h"
#include "engine/trainer/state_bytes.h"
#include "engine/trainer/tensor_freight.h"
#include "engine/trainer/trainer.h"
#include "stages/entry_names.h"

namespace millrace::engine {
namespace {

using About = Exchange::About;

void post_to_all(Exchange& exchange, const std::string& text) {
  {
    const std::lock_guard lock(exchange.mutex());
    for (int rank = 0; rank < exchange.ranks(); ++rank) {
      if (rank != exchange.rank()) exchange.post(rank, About::state, text);
    }
  }
  await_ranks(exchange, [&] { return exchange.all_posted(); });
}

/// As a letter's bytes.
std::string letter_of(int stage, const StageFacts& facts) {
  std::string text = bytes_of(stage) + bytes_of(facts.memory) + bytes_of(facts.dead_units) +
                     bytes_of(facts.capture.recorded) + bytes_of(facts.capture.left.size());
  for (const std::string& name : facts.capture.left) text += bytes_of(name.size()) + name;
  return text;
}

StageFacts facts_of(std::string_view& bytes, int& stage) {
  stage = taken<int>(bytes);
  StageFacts facts{.memory = taken<StageMemory>(bytes), .dead_units = taken<DeadUnits>(bytes)};
  facts.capture.recorded = taken<bool>(bytes);
  facts.capture.left.resize(taken<std::size_t>(bytes));
  for (std::string& name : facts.capture.left) {
    const std::size_t length = taken<std::size_t>(bytes);
    name = bytes.substr(0, length);
    bytes.remove_prefix(length);
  }
  return facts;
}

}  // namespace

int rank_of(const TrainerOptions& options, const Schedule& schedule, int replica_id) {
  const int worker = workers_of_replicas(schedule)[std::size_t(replica_id)];
  return options.rank_of_worker[std::size_t(worker)];
}

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
  for (std::size_t replica_id = 0; replica_id < options_.devices.size(); ++replica_id) {
    if (!here(int(replica_id))) options_.devices[replica_id] = {};
  }
  wires_ = std::make_unique<RankWires>(options_, schedule_, devices_);
  freight_ = std::make_unique<TensorFreight>(
      options_, samples_, boundaries_,
      [this](int stage) { return step_of(stage); },
      [this](int replica_id) -> const capture::StageStep& {
        return *steps_[std::size_t(replica_id)];
      });
}

bool Trainer::here(int replica_id) const {
  return !options_.exchange ||
         rank_of(options_, schedule_, replica_id) == options_.exchange->rank();
}

capture::StageStep* Trainer::step_of(int stage) const {
  for (int replica = 0; replica < schedule_.replicas_of(stage); ++replica) {
    const auto& step = steps_[std::size_t(schedule_.replica_id(stage, replica))];
    if (step) return step.get();
  }
  return nullptr;
}

stages::StateDict Trainer::share_of(int rank) const {
  std::set<std::string> mine;
  for (std::size_t worker = 0; worker < schedule_.workers.size(); ++worker) {
    if (options_.rank_of_worker[worker] != rank) continue;
    for (const int stage : stages_of(schedule_.workers[worker])) {
      const stages::StageRange range = range_of(options_, stage);
      for (const auto& spec : options_.network->parameters(range.begin, range.end))
        mine.insert(spec.name);
    }
  }
  stages::StateDict share = checkpoint();
  std::erase_if(share, [&](const auto& entry) {
    const std::string name = stages::parameter_of(entry.first);
    return !name.empty() && !mine.contains(name);
  });
  return share;
}

std::string Trainer::told_facts() const {
  std::string all;
  for (int stage = 0; stage < schedule_.stages; ++stage) {
    if (steps_[std::size_t(schedule_.replica_id(stage, 0))])
      all += letter_of(stage, {.dead_units = dead_units(stage)});
  }
  return all;
}

void Trainer::take_facts(std::string_view told) {
  const std::lock_guard lock(cut_mutex_);
  while (!told.empty()) {
    int stage = 0;
    StageFacts facts = facts_of(told, stage);
    facts_elsewhere_[stage] = std::move(facts);
  }
}

void Trainer::gather() {
  Exchange& exchange = *options_.exchange;
  if (exchange.rank() != 0) {
    std::string text;
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      // Replicas have learned the same: the first tells.
      if (!steps_[std::size_t(schedule_.replica_id(stage, 0))]) continue;
      const std::string learned = to_bytes(checkpoint(stage));
      text += letter_of(stage, facts(stage)) + bytes_of(learned.size()) + learned;
    }
    {
      const std::lock_guard lock(exchange.mutex());
      exchange.post(0, About::state, std::move(text));
    }
    return await_ranks(exchange, [&] { return exchange.all_posted(); });
  }
  learned_elsewhere_.clear();
  for (int waited = exchange.ranks() - 1; waited > 0; --waited) {
    std::optional<Exchange::Letter> letter;
    await_ranks(exchange, [&] { return (letter = exchange.letter(About::state)).has_value(); });
    const std::lock_guard lock(cut_mutex_);
    for (std::string_view bytes = letter->text; !bytes.empty();) {
      int stage = 0;
      StageFacts told = facts_of(bytes, stage);
      facts_elsewhere_[stage] = std::move(told);
      const std::size_t learned = taken<std::size_t>(bytes);
      learned_elsewhere_[stage] = state_of(bytes.substr(0, learned));
      bytes.remove_prefix(learned);
    }
  }
}

void Trainer::dismiss_ranks() {
  if (options_.exchange) post_to_all(*options_.exchange, "E");
}

bool Trainer::follow() {
  Exchange& exchange = *options_.exchange;
  std::optional<Exchange::Letter> letter;
  await_ranks(exchange, [&] { return (letter = exchange.letter(About::state)).has_value(); });
  std::string_view bytes = letter->text;
  if (bytes.front() == 'E') return false;
  bytes.remove_prefix(1);
  LossGuard::Told told = guard_.told();
  told.roll_backs = taken<std::int64_t>(bytes);
  guard_.mirror(told);
  std::vector<int> cut(std::size_t(options_.stages - 1));
  std::memcpy(cut.data(), bytes.data(), cut.size() * sizeof(int));
  bytes.remove_prefix(cut.size() * sizeof(int));
  recut(cut, state_of(bytes));
  return true;
}

}  // namespace millrace::engine
