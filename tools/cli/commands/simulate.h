// `millrace simulate`, by its parts.
#pragma once

#include <nlohmann/json.hpp>  // results

#include <string>  // text

#include "engine/simulate/simulator.h"
#include "tools/cli/commands/schedule_choice.h"

namespace millrace::cli {

struct SimulateArguments : ScheduleChoice {
  std::int64_t samples = 0;  ///< 0: enough for a steady period
  // What a sample costs: one value, or one a stage; or a profile.
  std::vector<double> forward = {1}, backward = {2}, update = {0};  ///< ms
  double message_bytes = 0, weight_bytes = 0, stash_bytes = 0;      ///< of every stage
  std::string profile;   ///< JSON, or PipeDream's graph.txt
  std::vector<int> cut;  ///< of the profile's modules; empty: balanced
  // What it runs on.
  double link_latency_ms = 0, link_gbps = 0;  ///< Gbit/s; 0: bytes cost nothing
  std::string devices, links;                 ///< as plan takes them
  std::string overlap = "none";               ///< none | transfers | all
  std::int64_t tensor = 1;                    ///< devices that share each module
  double delay_ms = 0;                        ///< of a message, beside others
  double overhead_ms = 0, contention = 1;
  std::int64_t cores = 0;  ///< 0: one a worker
  double fps = 0;          ///< of a live source; 0: samples are there when asked for
  // Where to write what; "": nowhere.
  std::string trace, svg, json;
  double until_ms = 0;  ///< of the SVG; 0: as long as names fit
};

/// Adds the options to `command`; they go to `arguments`, which outlive the parsing.
void add_simulate_options(CLI::App& command, SimulateArguments& arguments);

/// What was found, for people.
std::string simulation_text(const engine::Schedule& schedule, const engine::Simulation& simulation);

/// The same for scripts, in full.
nlohmann::ordered_json simulation_json(const engine::Schedule& schedule,
                                       const engine::Simulation& simulation);

}  // namespace millrace::cli
