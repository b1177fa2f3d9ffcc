// The results of `millrace simulate`.
#pragma once

#include <string>

#include "engine/simulate/simulator.h"

namespace millrace::cli {

/// For people.
std::string simulation_text(const engine::Schedule& schedule, const engine::Simulation& simulation);

/// For scripts, in full: JSON.
std::string simulation_json(const engine::Schedule& schedule, const engine::Simulation& simulation);

}  // namespace millrace::cli
