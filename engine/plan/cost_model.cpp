#include "engine/plan/cost_model.h"

#include <algorithm>
#include <stdexcept>

namespace millrace::engine::plan {
namespace {

/// One of `ways` parts, scaled from the largest measured number of parts <= `ways`.
StepCosts part_of(const ModuleProfile& module, int ways) {
  StepCosts ms = module.ms();
  int measured = 1;
  for (const auto& [of, part] : module.parts) {
    if (of > ways) break;
    measured = of;
    ms = part;
  }
  const double rest = double(ways) / measured;
  return {ms.forward / rest, ms.input_gradient / rest, ms.weight_gradient / rest, ms.update / rest};
}

StageCosts costs_of(const Profile& profile, int index) {
  const ModuleProfile& module = profile.modules[std::size_t(index)];
  StageCosts costs{module.ms(), module.bytes};
  if (index == 0) costs.ms.input_gradient = 0;
  return costs;
}

const Link& worst_link(const Machine& machine, int tensor) {
  int level = 0;
  for (int first = 0; first + tensor <= machine.devices(); first += tensor)
    level = std::max(level, machine.level_between(first, first + tensor - 1));
  return machine.levels[std::size_t(level)].link;
}

}  // namespace

std::vector<StageCosts> stage_costs(const Profile& profile, const std::vector<int>& cut) {
  const int modules = int(profile.modules.size());
  std::vector<int> begins = {0};
  for (const int begin : cut) {
    if (begin <= begins.back() || begin >= modules) {
      throw std::invalid_argument("a cut at " + std::to_string(begin) + " leaves a stage empty: " +
                                  "cuts ascend from 1 to " + std::to_string(modules - 1));
    }
    begins.push_back(begin);
  }
  begins.push_back(modules);
  std::vector<StageCosts> stages(begins.size() - 1);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    stages[i].ms.update = profile.agree_ms;
    for (int at = begins[i]; at < begins[i + 1]; ++at) stages[i] += costs_of(profile, at);
  }
  return stages;
}

Profile shared_by(Profile profile, int tensor, const Machine& machine) {
  if (tensor < 2) return profile;
  const Link& link = worst_link(machine, tensor);
  const auto sum_ms = [&](double bytes, int ways) {
    if (bytes == 0) return 0.0;
    // Each rank sends its part to all others.
    return machine.sums && ways > 1 ? machine.sums->ms(bytes * (ways - 1))
                                    : all_reduce_ms(link, bytes, ways);
  };
  for (ModuleProfile& module : profile.modules) {
    const int ways = std::min(module.tensor_ways, tensor);
    const StepCosts part = part_of(module, ways);
    module.forward.median = part.forward + sum_ms(module.tensor_bytes, ways);
    module.input_gradient.median = part.input_gradient + sum_ms(module.tensor_gradient_bytes, ways);
    module.weight_gradient.median = part.weight_gradient;
    module.update.median = part.update;
    module.bytes.weight /= ways;
    module.bytes.state /= ways;
    module.bytes.stash /= ways;
  }
  if (machine.sums) profile.agree_ms = sum_ms(sizeof(float), tensor);
  return profile;
}

double StageTime::period(Overlap overlap) const {
  if (overlap == Overlap::none) return work + agree + arrive + leave;
  const double busy = overlap == Overlap::transfers ? work + agree : std::max(work, agree);
  return std::max({busy, arrive, leave});
}

CostModel::CostModel(const Profile& profile, const Machine& machine, const Method& method)
    : machine_(machine),
      method_(method),
      entry_(schedule_entry(method.schedule)),
      speedup_(profile.thread_speedup) {
  const int pipelines = method.tensor * method.copies;
  if (pipelines < 1 || machine.devices() % pipelines != 0) {
    throw std::invalid_argument(std::to_string(machine.devices()) +
                                " devices are no multiple of tensor x copies (" +
                                std::to_string(pipelines) + ")");
  }
  places_ = (machine.devices() / pipelines - method.idle) * method.virtual_stages;
  const int n = int(profile.modules.size());
  const Profile each = shared_by(profile, method.tensor, machine);
  agree_ms_ = each.agree_ms;
  sums_.push_back({{}, {.activation = profile.input_bytes}});
  compute_.push_back(0);
  for (int i = 0; i < n; ++i) {
    const StageCosts module = costs_of(each, i);
    sums_.push_back(sums_.back());
    sums_.back() += module;
    compute_.push_back(compute_.back() + module.ms.forward * (method.recompute ? 2 : 1) +
                       module.ms.backward());
  }
  levels_.assign(places_, std::vector<int>(places_, 0));
  for (int a = 0; a < places_; ++a) {
    for (int b = a; b < places_; ++b) {
      for (int copy = 0; copy < method.copies; ++copy) {
        // The last of a place's devices is the farthest from another place's first.
        const int level =
            std::max(machine.level_between(device(a, copy), device(b, copy) + method.tensor - 1),
                     machine.level_between(device(a, copy) + method.tensor - 1, device(b, copy)));
        levels_[a][b] = levels_[b][a] = std::max(levels_[a][b], level);
      }
    }
  }
}

int CostModel::device(int place, int copy) const {
  const int workers = places_ / method_.virtual_stages;
  return method_.device(place % workers, copy, workers + method_.idle);
}

const Link& CostModel::worst_link(int place, int other) const {
  static const Link kWithin{};  // a worker's own chunks
  if (device(place, 0) == device(other, 0)) return kWithin;
  return machine_.levels[levels_[place][other]].link;
}

const Link& CostModel::arrive_link(const Stage& stage) const {
  return worst_link(stage.place - 1, stage.place + stage.places() - 1);
}

double CostModel::arrive_ms(const Stage& stage) const {
  if (stage.begin == 0) return 0;
  return activation_ms(stage) + arrive_link(stage).ms(sums_[stage.begin].bytes.gradient);
}

double CostModel::leave_ms(const Stage& stage) const {
  if (stage.end == modules()) return 0;
  const Link& link = worst_link(stage.place, stage.place + stage.places());
  return link.ms(sums_[stage.end].bytes.activation) + link.ms(sums_[stage.end].bytes.gradient);
}

double CostModel::activation_ms(const Stage& stage) const {
  return stage.begin > 0 ? arrive_link(stage).ms(sums_[stage.begin].bytes.activation) : 0;
}

const Link& CostModel::agree_link(const Stage& stage) const {
  return machine_.link_between(
      device(stage.place, 0),
      device(stage.place + stage.places() - 1, method_.copies - 1) + method_.tensor - 1);
}

double CostModel::speedup(int threads) const {
  return threads <= int(speedup_.size()) ? speedup_[threads - 1] : 0.0;
}

int CostModel::group(int replicas) const {
  return std::max(method_.microbatches, replicas);
}

StepCosts CostModel::step(int begin, int end) const {
  const StepCosts &to = sums_[end].ms, &from = sums_[begin].ms;
  return {to.forward - from.forward, to.input_gradient - from.input_gradient,
          to.weight_gradient - from.weight_gradient, to.update - from.update + agree_ms_};
}

double CostModel::work(int begin, int end, int replicas, int threads) const {
  const double speed = speedup(threads);
  return (compute_[end] - compute_[begin]) / (turns(replicas) * speed) +
         (sums_[end].ms.update - sums_[begin].ms.update) / (group(replicas) * speed);
}

StageTime CostModel::time(const Stage& stage) const {
  const auto [begin, end, place, replicas, threads] = stage;
  StageTime time;
  time.work = work(begin, end, replicas, threads) + agree_ms_ / group(replicas);
  if (const int members = replicas * method_.copies; members > 1) {
    time.agree =
        all_reduce_ms(agree_link(stage), weight_bytes(begin, end), members) / group(replicas);
  }
  time.arrive = arrive_ms(stage) / turns(replicas);
  time.leave = leave_ms(stage) / turns(replicas);
  return time;
}

int CostModel::depth(const Stage& stage) const {
  const int behind = places_ - stage.place - stage.places();
  return 1 + (behind + stage.replicas - 1) / stage.replicas;
}

bool CostModel::allows(const Stage& stage) const {
  if (entry_.flushes) return stage.replicas <= method_.microbatches;
  return !entry_.fits_minibatch || depth(stage) * stage.replicas <= method_.microbatches;
}

StageMemory CostModel::memory(const Stage& stage, int stages) const {
  const int deep = depth(stage), samples = samples_each(stage.replicas);
  StageMemory memory;
  memory.versions = entry_.versions_kept(deep);
  memory.samples = entry_.samples_kept(deep, stages, samples);
  const double weights = weight_bytes(stage.begin, stage.end);
  const StepBytes &to = sums_[stage.end].bytes, &from = sums_[stage.begin].bytes;
  const double stash = to.stash - from.stash;
  memory.weights = memory.versions * weights;
  memory.optimizer = weights + to.state - from.state;
  memory.whole = method_.recompute ? entry_.recomputed_kept(deep, stages, samples) : memory.samples;
  memory.stash = memory.whole * stash + input_bytes(stage.begin, memory.samples);
  if (stage.begin == 0) memory.replay = machine_.replay_bytes;
  return memory;
}

std::vector<double> CostModel::memory_sums(int versions, int whole) const {
  std::vector<double> sums;
  for (const auto& [ms, bytes] : sums_)
    sums.push_back((versions + 1) * bytes.weight + bytes.state + whole * bytes.stash);
  return sums;
}

double CostModel::input_bytes(int begin, int samples) const {
  return method_.recompute ? samples * sums_[begin].bytes.activation : 0.0;
}

}  // namespace millrace::engine::plan
