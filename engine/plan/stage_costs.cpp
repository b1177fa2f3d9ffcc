#include "engine/plan/stage_costs.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace millrace::engine::plan {

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
    StageCosts& stage = stages[i];
    stage.ms.update = profile.agree_ms;
    for (int at = begins[i]; at < begins[i + 1]; ++at) {
      const ModuleProfile& module = profile.modules[at];
      StepCosts ms = module.ms();
      if (at == 0) ms.input_gradient = 0;
      stage.ms += ms;
      stage.bytes.weight += module.bytes.weight;
      stage.bytes.state += module.bytes.state;
      stage.bytes.stash += module.bytes.stash;
      stage.bytes.activation = module.bytes.activation;
      stage.bytes.gradient = module.bytes.gradient;
    }
  }
  return stages;
}

namespace {

/// What one of `ways` parts takes: as measured of so many or of fewer, which then are split on.
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

const Link& worst_link(const Machine& machine, int tensor) {
  int level = 0;
  for (int first = 0; first + tensor <= machine.devices(); first += tensor)
    level = std::max(level, machine.level_between(first, first + tensor - 1));
  return machine.levels[std::size_t(level)].link;
}

}  // namespace

Profile shared_by(Profile profile, int tensor, const Machine& machine) {
  if (tensor < 2) return profile;
  const Link& link = worst_link(machine, tensor);
  const auto sum_ms = [&](double bytes, int ways) {
    if (bytes == 0) return 0.0;
    // Each sends all others its part.
    return machine.knows_sums && ways > 1 ? machine.sums.ms(bytes * (ways - 1))
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
  if (machine.knows_sums) profile.agree_ms = sum_ms(sizeof(float), tensor);
  return profile;
}

}  // namespace millrace::engine::plan
