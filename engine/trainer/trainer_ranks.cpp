#include <set>
#include <stdexcept>

#include "engine/trainer/rank_wires.h"
#include "engine/trainer/tensor_freight.h"
#include "engine/trainer/trainer.h"
#include "stages/parameters.h"
#include "stages/safetensors.h"

namespace millrace::engine {
namespace {

using About = Exchange::About;

void post_to_all(Exchange& exchange, const std::string& text) {
  {
    const std::lock_guard lock(exchange.mutex());
    exchange.post_to_others(About::state, text);
  }
  await_ranks(exchange, [&] { return exchange.all_posted(); });
}

void write(ByteWriter& to, int stage, const StageFacts& facts) {
  to.put(stage).put(facts.memory).put(facts.dead_units).put(facts.recorded).put(facts.left);
}

StageFacts read_facts(ByteReader& from, int& stage) {
  stage = from.get<int>();
  return {.memory = from.get<StageMemory>(),
          .dead_units = from.get<DeadUnits>(),
          .recorded = from.get<bool>(),
          .left = from.list<std::string>()};
}

}  // namespace

void Trainer::recut(const std::vector<int>& cut) {
  cut_at(cut);
  stages::StateDict weights = checkpoint();
  if (options_.exchange) {
    ByteWriter letter;
    letter.put('C').put(backed_off()).put(cut).raw(stages::to_safetensors(weights));
    post_to_all(*options_.exchange, letter.bytes());
  }
  recut(cut, std::move(weights), backed_off());
}

void Trainer::check_ranks() {
  Exchange& exchange = *options_.exchange;
  std::vector<int>& ranks = options_.rank_of_worker;
  if (ranks.empty()) ranks = deal_workers(int(schedule_.workers.size()), exchange.ranks());
  require_ranks(schedule_, ranks, exchange.ranks());
  if (options_.late_targets) throw std::invalid_argument("ranks have no targets that come late");
  // Data to and from other ranks goes through host memory, as for a core.
  for (std::size_t replica_id = 0; replica_id < options_.devices.size(); ++replica_id) {
    if (!here(int(replica_id))) options_.devices[replica_id] = {};
  }
  wires_ = std::make_unique<RankWires>(options_, schedule_, devices_);
  freight_ = std::make_unique<TensorFreight>(
      options_, samples_, boundaries_, [this](int stage) { return step_of(stage); },
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
  ByteWriter all;
  for (int stage = 0; stage < schedule_.stages; ++stage) {
    if (steps_[std::size_t(schedule_.replica_id(stage, 0))])
      write(all, stage, {.dead_units = dead_units(stage)});
  }
  return all.bytes();
}

void Trainer::take_facts(std::string_view told) {
  const std::lock_guard lock(cut_mutex_);
  for (ByteReader bytes(told); !bytes.empty();) {
    int stage = 0;
    StageFacts facts = read_facts(bytes, stage);
    facts_elsewhere_[stage] = std::move(facts);
  }
}

void Trainer::gather() {
  Exchange& exchange = *options_.exchange;
  if (exchange.rank() != 0) {
    ByteWriter text;
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      // Replicas have learned the same: the first reports.
      if (!steps_[std::size_t(schedule_.replica_id(stage, 0))]) continue;
      write(text, stage, facts(stage));
      text.put(stages::to_safetensors(checkpoint(stage)));
    }
    {
      const std::lock_guard lock(exchange.mutex());
      exchange.post(0, About::state, text.bytes());
    }
    return await_ranks(exchange, [&] { return exchange.all_posted(); });
  }
  learned_elsewhere_.clear();
  for (int waited = exchange.ranks() - 1; waited > 0; --waited) {
    std::optional<Exchange::Letter> letter;
    await_ranks(exchange, [&] { return (letter = exchange.letter(About::state)).has_value(); });
    const std::lock_guard lock(cut_mutex_);
    for (ByteReader bytes(letter->text); !bytes.empty();) {
      int stage = 0;
      StageFacts told = read_facts(bytes, stage);
      facts_elsewhere_[stage] = std::move(told);
      learned_elsewhere_[stage] = stages::from_safetensors(std::string(bytes.text()));
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
  ByteReader bytes(letter->text);
  if (bytes.get<char>() == 'E') return false;
  const double backed_off = bytes.get<double>();
  const std::vector<int> cut = bytes.list<int>();
  recut(cut, stages::from_safetensors(std::string(bytes.rest())), backed_off);
  return true;
}

}  // namespace millrace::engine
