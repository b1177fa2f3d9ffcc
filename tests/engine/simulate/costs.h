// Costs of stages for simulations.
#pragma once

#include <vector>

#include "engine/simulate/simulator.h"

namespace millrace::engine {

inline std::vector<plan::StageCosts> equal_costs(int stages, plan::StepCosts ms) {
  return std::vector<plan::StageCosts>(stages, plan::StageCosts{ms});
}

}  // namespace millrace::engine
