#include "tools/cli/commands/simulate_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/format.h"
#include "engine/plan/plan_text.h"
#include "engine/simulate/timeline.h"

namespace millrace::cli {
namespace {

using engine::format;
using engine::Schedule;
using engine::Simulation;
using engine::plan::bytes_text;

constexpr int kMostRows = 32;

std::string stage_rows(const Simulation& simulation) {
  std::string text = "stage versions samples   weights optimizer activations     total  age\n";
  const int rows = std::min(kMostRows, int(simulation.memory.size()));
  for (int stage = 0; stage < rows; ++stage) {
    const engine::plan::StageMemory& memory = simulation.memory[stage];
    text += format("%5d %8d %7d %9s %9s %11s %9s %4lld\n", stage, memory.versions, memory.samples,
                   bytes_text(memory.weights).c_str(), bytes_text(memory.optimizer).c_str(),
                   bytes_text(memory.stash).c_str(), bytes_text(memory.total()).c_str(),
                   static_cast<long long>(simulation.gradient_age[stage]));
  }
  const int more = int(simulation.memory.size()) - rows;
  return more > 0 ? text + format("  ... and %d more, see --json\n", more) : text;
}

}  // namespace

std::string simulation_text(const Schedule& schedule, const Simulation& simulation) {
  double most = 0;
  for (const engine::WorkerUse& use : simulation.workers) most = std::max(most, use.peak_bytes);
  std::string text =
      format("%s, %d stages on %zu workers, %lld samples\n", schedule.name.c_str(), schedule.stages,
             schedule.workers.size(), static_cast<long long>(simulation.samples));
  text += format("period       %.4g ms, %.4g frames a second%s\n", simulation.period_ms,
                 simulation.fps(),
                 simulation.settled ? "" : " (not settled: more --samples would tell)");
  text += format("latency      p50 %.4g ms, p99 %.4g ms, max %.4g ms\n", simulation.latency_p50_ms,
                 simulation.latency_p99_ms, simulation.latency_max_ms);
  text += format("utilisation  %.1f %%, bubble %.1f %% of the workers' time\n",
                 100 * simulation.utilisation(), 100 * simulation.bubble());
  text += format("total        %.4g ms\n", simulation.total_ms);
  if (simulation.dropped > 0)
    text += format("dropped      %lld frames\n", static_cast<long long>(simulation.dropped));
  if (most > 0) text += "memory       " + bytes_text(most) + " on the fullest device\n";
  return text + "\n" + stage_rows(simulation) + "\n" +
         engine::utilisation_bars(schedule, simulation, 50, kMostRows);
}

std::string simulation_json(const Schedule& schedule, const Simulation& simulation) {
  nlohmann::ordered_json json = {{"schedule", schedule.name},
                                 {"stages", schedule.stages},
                                 {"samples", simulation.samples},
                                 {"dropped", simulation.dropped},
                                 {"period_ms", simulation.period_ms},
                                 {"fps", simulation.fps()},
                                 {"settled", simulation.settled},
                                 {"step_p50_ms", simulation.step_p50_ms},
                                 {"latency_ms",
                                  {{"p50", simulation.latency_p50_ms},
                                   {"p99", simulation.latency_p99_ms},
                                   {"max", simulation.latency_max_ms}}},
                                 {"total_ms", simulation.total_ms},
                                 {"utilisation", simulation.utilisation()},
                                 {"bubble", simulation.bubble()},
                                 {"gradient_age", simulation.gradient_age}};
  const std::vector<std::string> names = engine::worker_names(schedule);
  for (std::size_t worker = 0; worker < names.size(); ++worker) {
    const engine::WorkerUse& use = simulation.workers[worker];
    json["workers"].push_back({{"name", names[worker]},
                               {"compute_ms", use.compute_ms},
                               {"handoff_ms", use.handoff_ms},
                               {"peak_bytes", use.peak_bytes}});
  }
  for (const engine::plan::StageMemory& memory : simulation.memory) {
    json["memory"].push_back({{"versions", memory.versions},
                              {"samples", memory.samples},
                              {"weight_bytes", memory.weights},
                              {"optimizer_bytes", memory.optimizer},
                              {"stash_bytes", memory.stash},
                              {"total_bytes", memory.total()}});
  }
  return json.dump(1) + "\n";
}

}  // namespace millrace::cli
