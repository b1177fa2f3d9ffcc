#include <algorithm>
#include <set>
#include <stdexcept>

#include "capture/plain_errors.h"
#include "engine/trainer/operations.h"
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

StageFacts read_facts(ByteReader& from) {
  return {.memory = from.get<StageMemory>(),
          .dead_units = from.get<DeadUnits>(),
          .recorded = from.get<bool>(),
          .left = from.list<std::string>()};
}

}  // namespace

void Trainer::recut(const std::vector<int>& cut) {
  require_cut(options_, schedule_, cut);
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

stages::StateDict share_of(const Trainer& trainer, int rank) {
  const TrainerOptions& options = trainer.options();
  const Schedule& schedule = trainer.schedule();
  std::set<std::string> mine;
  for (std::size_t worker = 0; worker < schedule.workers.size(); ++worker) {
    if (options.rank_of_worker[worker] != rank) continue;
    for (const int stage : stages_of(schedule.workers[worker])) {
      const stages::StageRange range = range_of(options, stage);
      for (const auto& spec : options.network->parameters(range.begin, range.end))
        mine.insert(spec.name);
    }
  }
  stages::StateDict share = trainer.checkpoint();
  std::erase_if(share, [&](const auto& entry) {
    const std::string name = stages::parameter_of(entry.first);
    return !name.empty() && !mine.contains(name);
  });
  return share;
}

std::string Trainer::live_facts() const {
  ByteWriter all;
  for (int stage = 0; stage < schedule_.stages; ++stage) {
    if (steps_[std::size_t(schedule_.replica_id(stage, 0))])
      write(all, stage, {.dead_units = dead_units(stage)});
  }
  return all.bytes();
}

void Trainer::take_facts(std::string_view facts) {
  const std::lock_guard lock(cut_mutex_);
  for (ByteReader bytes(facts); !bytes.empty();) {
    const int stage = bytes.get<int>();
    facts_elsewhere_[std::size_t(stage)] = read_facts(bytes);
  }
}

void Trainer::gather() {
  Exchange& exchange = *options_.exchange;
  if (exchange.rank() != 0) {
    ByteWriter text;
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      // Replicas have equal weights: the first reports.
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
      const int stage = bytes.get<int>();
      facts_elsewhere_[std::size_t(stage)] = read_facts(bytes);
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

DeadUnits Trainer::dead_units(int stage) const {
  const capture::StageStep* const step = step_of(stage);
  if (!step) return facts_elsewhere_[std::size_t(stage)].dead_units;
  const stages::DeadUnits& counted = step->dead_units();
  const bool looks = device_of(options_, schedule_.replica_id(stage, 0)).is_cpu();
  return {counted.dead(), looks ? counted.units() : 0};
}

std::vector<DeadUnits> Trainer::dead_units() const {
  const std::lock_guard lock(cut_mutex_);
  std::vector<DeadUnits> all;
  for (int stage = 0; stage < schedule_.stages; ++stage) all.push_back(dead_units(stage));
  return all;
}

StageFacts Trainer::facts(int stage) const {
  const capture::StageStep* const step = step_of(stage);
  if (!step) return facts_elsewhere_[std::size_t(stage)];
  const std::int64_t weights = step->stage().weight_bytes();
  const stages::StageRange range = step->stage().range();
  std::int64_t samples = 0;
  const auto add = [&](const std::vector<at::Tensor>& slots) {
    for (const at::Tensor& slot : slots)
      samples += slot.defined() ? std::int64_t(slot.nbytes()) : 0;
  };
  if (range.first) add(samples_.input);
  if (range.last && !samples_.target_is_input()) add(samples_.target);
  if (range.last) add(samples_.prediction);
  return {.memory = {.weights = weights,
                     .stashes = weights * (schedule_.versions_of(stage) - 1),
                     .optimizer = step->stage().optimizer_bytes(),
                     .gradients = step->stage().gradient_bytes(),
                     .activations = step->peak_activation_bytes(),
                     .cuts = step->cut_bytes(),
                     .scratch = step->scratch_bytes(),
                     .samples = samples},
          .dead_units = dead_units(stage),
          .recorded = step->records(),
          .left = left_to_libtorch(step->operations())};
}

capture::RateInForce Trainer::rate() const {
  const std::lock_guard lock(cut_mutex_);
  const auto here = std::ranges::find_if(steps_, [](const auto& step) { return step != nullptr; });
  return here == steps_.end() ? capture::RateInForce() : (*here)->rate_in_force();
}

std::vector<StageFacts> Trainer::facts() const {
  std::vector<StageFacts> all;
  for (int stage = 0; stage < schedule_.stages; ++stage) all.push_back(facts(stage));
  return all;
}

stages::StateDict Trainer::state() const {
  stages::StateDict all = checkpoint();
  std::erase_if(all, [](const auto& entry) { return entry.first.starts_with("optimizer."); });
  return all;
}

stages::StateDict Trainer::checkpoint() const {
  stages::StateDict all;
  for (int stage = 0; stage < schedule_.stages; ++stage) {
    const auto elsewhere = learned_elsewhere_.find(stage);
    if (step_of(stage)) {
      for (auto& entry : checkpoint(stage)) all.push_back(std::move(entry));
    } else if (elsewhere != learned_elsewhere_.end()) {
      all.insert(all.end(), elsewhere->second.begin(), elsewhere->second.end());
    }
  }
  if (!options_.exchange || options_.exchange->rank() != 0 || !learned_elsewhere_.empty())
    return all;
  // The other ranks have learned nothing yet.
  std::set<std::string> names;
  for (const auto& entry : all) names.insert(entry.first);
  for (const auto& entry : options_.weights) {
    if (!names.contains(entry.first)) all.push_back(entry);
  }
  return all;
}

void Trainer::set_fixed(int stage, const stages::StateDict& weights) {
  capture::StageStep& step = *step_of(stage);
  capture::with_plain_errors([&] {
    step.launch();  // earlier calls use the old weights
    step.synchronize();
    step.stage().set_fixed(weights);
    step.synchronize();
  });
}

stages::StateDict Trainer::checkpoint(int stage) const {
  capture::StageStep& step = *step_of(stage);
  return capture::with_plain_errors([&] {
    step.launch();  // earlier calls belong to the state, and must end first
    step.synchronize();
    return step.stage().checkpoint();
  });
}

}  // namespace millrace::engine
