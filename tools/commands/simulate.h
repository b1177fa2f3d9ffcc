// `millrace simulate`, by its parts.
#pragma once

#include <nlohmann/json.hpp>  // results

#include <string>  // text

#include "engine/simulate/simulator.h"
#include "tools/config/commands.h"

namespace CLI {
class App;
}

namespace millrace::tools {

/// Adds the command to `app`; its arguments go to `arguments`, its exit code to `code`, both of
/// which must outlive the parsing.
void add_simulate(CLI::App& app, SimulateArguments& arguments, int& code);

/// What was found, for people.
std::string simulation_text(const engine::Schedule& schedule, const engine::Simulation& simulation);

/// The same for scripts, in full.
nlohmann::ordered_json simulation_json(const engine::Schedule& schedule,
                                       const engine::Simulation& simulation);

}  // namespace millrace::tools
