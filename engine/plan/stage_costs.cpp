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

Profile shared_by(Profile profile, int tensor, const Link& link) {
  for (ModuleProfile& module : profile.modules) {
    const int ways = std::min(module.tensor_ways, tensor);
    const double adds_up = all_reduce_ms(link, module.tensor_bytes, ways);
    module.forward.median = module.forward.median / ways + adds_up;
    module.input_gradient.median = module.input_gradient.median / ways + adds_up;
    module.weight_gradient.median /= ways;
    module.update.median /= ways;
    module.bytes.weight /= ways;
    module.bytes.state /= ways;
    module.bytes.stash /= ways;
  }
  return profile;
}

}  // namespace millrace::engine::plan
