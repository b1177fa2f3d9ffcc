#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "engine/format.h"
#include "engine/plan/balance.h"
#include "engine/plan/plan_text.h"
#include "engine/simulate/timeline.h"
#include "engine/trace/trace.h"
#include "io/files/whole_file.h"
#include "tools/app/config/config.h"
#include "tools/app/config/profile_read.h"
#include "tools/app/outputs/outputs.h"
#include "tools/cli/commands/command.h"
#include "tools/cli/commands/schedule.h"

namespace millrace::cli {
namespace {

using engine::format;
using engine::Schedule;
using engine::Simulation;
using engine::SimulationInput;
using engine::plan::bytes_text, engine::plan::Profile, engine::plan::StageCosts;

/// Most actions to simulate without --samples.
constexpr std::int64_t kMostUnasked = 20'000'000;

struct SimulateArguments : engine::ScheduleSpec {
  engine::GivenCosts costs;                   ///< gradients are as large as activations
  std::string profile;                        ///< instead of costs: JSON, or PipeDream's graph.txt
  int frames = 1;                             ///< of graph.txt's minibatch
  std::vector<int> cut;                       ///< of the profile's modules; empty: balanced
  double link_latency_ms = 0, link_gbps = 0;  ///< Gbit/s; 0: bytes are free
  std::string devices, links;                 ///< see `plan`
  std::string overlap = "none";               ///< none | transfers | all
  int tensor = 1;                             ///< devices that share each module
  double fps = 0;                             ///< of a live source; 0: samples are always ready
  /// Costs, machine and source come from the options above. Samples 0: enough for a steady period.
  SimulationInput input{.samples = 0};
  // Output files; "": none.
  std::string trace, svg, json;
  double until_ms = 0;  ///< where the SVG ends; 0: as long as names fit
};

/// The number of stages from --cut; 0: no --cut.
int stages_of_cut(const SimulateArguments& arguments) {
  const std::int64_t cut = arguments.cut.empty() ? 0 : std::int64_t(arguments.cut.size()) + 1;
  if (arguments.stages > 0 && cut > 0 && arguments.stages != cut) {
    throw app::ConfigError("--cut makes " + std::to_string(cut) + " stages, --stages says " +
                           std::to_string(arguments.stages));
  }
  return int(cut);
}

std::vector<StageCosts> profiled_costs(const SimulateArguments& arguments, const Profile& profile,
                                       int stages) {
  std::vector<int> cut = arguments.cut;
  if (cut.empty() && stages > 1) {
    std::vector<double> times;
    for (const auto& module : profile.modules) times.push_back(module.ms().total());
    cut = engine::balanced_cut(times, stages);
  }
  return engine::plan::stage_costs(profile, cut);
}

SimulationInput input_of(const SimulateArguments& arguments, const Schedule& schedule) {
  SimulationInput input = arguments.input;
  Profile profile;
  if (arguments.profile.empty()) {
    engine::GivenCosts costs = arguments.costs;
    input.input_bytes = costs.bytes.gradient = costs.bytes.activation;
    if (arguments.link_gbps > 0 && input.input_bytes == 0)
      throw app::ConfigError("--link-gbps has nothing to carry: give --message-bytes or --profile");
    input.stages = costs.of(schedule.stages, "--");
  } else {
    profile = app::read_profile(arguments.profile, arguments.frames);
    input.input_bytes = profile.input_bytes;
    input.frames = profile.frames;
  }
  if (arguments.fps != 0) input.source_period_ms = 1e3 * input.frames / arguments.fps;
  input.machine = engine::plan::parse_machine(arguments.devices.empty() ? "1" : arguments.devices,
                                              arguments.links, arguments.overlap, 0, profile);
  if (!arguments.devices.empty() && input.machine.devices() < int(schedule.workers.size())) {
    throw app::ConfigError("--devices " + arguments.devices + " are fewer than the schedule's " +
                           std::to_string(schedule.workers.size()) + " workers");
  }
  if (arguments.link_latency_ms > 0 || arguments.link_gbps > 0) {
    for (engine::plan::Level& level : input.machine.levels)
      level.link = {arguments.link_latency_ms, arguments.link_gbps * 1e9 / 8 / 1e3};
    input.machine.sums.reset();  // measured for other links
  }
  if (!arguments.profile.empty()) {
    const auto shared = [](const auto& module) { return module.tensor_ways > 1; };
    if (arguments.tensor > 1 && std::ranges::none_of(profile.modules, shared))
      throw app::ConfigError("--tensor " + std::to_string(arguments.tensor) + ": no module of " +
                             arguments.profile + " can be shared");
    const Profile each =
        engine::plan::shared_by(std::move(profile), arguments.tensor, input.machine);
    input.stages = profiled_costs(arguments, each, schedule.stages);
  }
  if (input.samples == 0) {
    const std::int64_t fits = kMostUnasked / 3 / schedule.stages / schedule.group * schedule.group;
    input.samples = std::min(engine::enough_samples(schedule),
                             std::max<std::int64_t>(fits, 2 * schedule.group));
  }
  input.events = !arguments.trace.empty() || !arguments.svg.empty();
  return input;
}

/// `head`, and a line for each of `count` stages or workers, as far as they fit on a screen.
template <class Row>
std::string rows(const std::string& head, std::size_t count, const Row& row) {
  constexpr std::size_t kMostRows = 32;
  std::string text = head + "\n";
  for (std::size_t i = 0; i < std::min(count, kMostRows); ++i) text += row(i);
  if (count > kMostRows) text += format("  ... and %zu more, see --json\n", count - kMostRows);
  return text;
}

std::string simulation_text(const Schedule& schedule, const Simulation& simulation) {
  double most = 0;
  for (const engine::WorkerUse& use : simulation.workers) most = std::max(most, use.peak_bytes);
  std::string text = format("%s, %d stages on %zu workers, %ld samples\n", schedule.name.c_str(),
                            schedule.stages, schedule.workers.size(), simulation.samples);
  text += format("period       %.4g ms, %.4g frames a second%s\n", simulation.period_ms,
                 simulation.fps(),
                 simulation.settled ? "" : " (not settled: more --samples would tell)");
  text += format("latency      p50 %.4g ms, p99 %.4g ms, max %.4g ms\n", simulation.latency_p50_ms,
                 simulation.latency_p99_ms, simulation.latency_max_ms);
  text += format("utilisation  %.1f %%, bubble %.1f %% of the workers' time\n",
                 100 * simulation.utilisation(), 100 * simulation.bubble());
  text += format("total        %.4g ms\n", simulation.total_ms);
  if (simulation.dropped > 0) text += format("dropped      %ld frames\n", simulation.dropped);
  if (most > 0) text += "memory       " + bytes_text(most) + " on the fullest device\n";
  const auto stage = [&](std::size_t i) {
    const engine::plan::StageMemory& memory = simulation.memory[i];
    return format("%5zu %8d %7d %9s %9s %11s %9s %4ld\n", i, memory.versions, memory.samples,
                  bytes_text(memory.weights).c_str(), bytes_text(memory.optimizer).c_str(),
                  bytes_text(memory.stash).c_str(), bytes_text(memory.total()).c_str(),
                  simulation.gradient_age[i]);
  };
  const std::vector<std::string> names = engine::worker_names(schedule);
  const auto worker = [&](std::size_t i) {
    const double work = 100 * simulation.compute_share(int(i));
    const double hand = 100 * simulation.handoff_share(int(i));
    return format("%-11s %5.1f %5.1f %5.1f\n", names[i].c_str(), work, hand, 100 - work - hand);
  };
  return text + "\n" +
         rows("stage versions samples   weights optimizer activations     total  age",
              simulation.memory.size(), stage) +
         "\n" + rows("worker       work  hand  idle %", names.size(), worker);
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

/// Time of about 60 actions, so that their names fit.
double readable_ms(const Simulation& simulation) {
  double sum = 0;
  for (const auto& event : simulation.events)
    sum += event.receive_ms + event.compute_ms + event.send_ms;
  return 60 * sum / double(std::max<std::size_t>(1, simulation.events.size()));
}

void write_files(const SimulateArguments& arguments, const Schedule& schedule,
                 const Simulation& simulation) {
  if (!arguments.trace.empty()) {
    io::write_whole(arguments.trace,
                    engine::trace_json(schedule.name + ", simulated",
                                       engine::worker_names(schedule), spans_of(simulation)));
  }
  if (!arguments.svg.empty()) {
    const double until = arguments.until_ms > 0 ? arguments.until_ms : readable_ms(simulation);
    const std::string title = schedule.name + ", " + std::to_string(schedule.stages) + " stages";
    io::write_whole(arguments.svg, timeline_svg(schedule, simulation, title, until));
  }
  if (!arguments.json.empty())
    io::write_whole(arguments.json, simulation_json(schedule, simulation));
}

int simulate_costs(const SimulateArguments& arguments) {
  app::require_other_files(
      {{"--trace", arguments.trace}, {"--svg", arguments.svg}, {"--json", arguments.json}},
      {arguments.profile, arguments.schedule});
  const Schedule schedule = chosen_schedule(arguments, stages_of_cut(arguments));
  Simulation simulation;
  try {
    simulation = engine::simulate(schedule, input_of(arguments, schedule));
  } catch (const std::invalid_argument& error) {
    throw app::ConfigError(error.what());
  }
  std::cout << simulation_text(schedule, simulation) << std::flush;
  write_files(arguments, schedule, simulation);
  return kDone;
}

void add_costs(CLI::App& options, SimulateArguments& simulate) {
  CLI::Option* const profile = options.add_option(
      "--profile", simulate.profile, "What modules cost: JSON, or PipeDream's graph.txt");
  add_number(options, "--frames", simulate.frames, "graph.txt: minibatch size of its figures", 1,
             1'000'000)
      ->needs(profile);
  options
      .add_option("--cut", simulate.cut, "Modules where stages 1.. begin, as 3,6; unset: balanced")
      ->delimiter(',')
      ->needs(profile);
  add_number(options, "--tensor", simulate.tensor,
             "Ranks that share each module of the profile, as far as it can be shared", 1, 64)
      ->needs(profile);
  // Costs that replace the profile's, per stage or for all stages.
  const auto by_stage = [&](const char* name, std::vector<double>& value, const char* text) {
    add_number(options, name, value, text, 0.0, 1e9)->capture_default_str()->excludes(profile);
  };
  by_stage("--forward", simulate.costs.forward, "ms of a sample: one value, or one per stage");
  by_stage("--backward", simulate.costs.backward, "ms; half each for input and weights");
  by_stage("--update", simulate.costs.update, "ms");
  const auto bytes = [&](const char* name, double& value, const char* text) {
    add_number(options, name, value, text, 0.0, 1e15)->excludes(profile);
  };
  bytes("--message-bytes", simulate.costs.bytes.activation,
        "Bytes of an activation, and of its gradient");
  bytes("--weight-bytes", simulate.costs.bytes.weight, "Bytes of a stage's weights");
  bytes("--stash-bytes", simulate.costs.bytes.stash, "Bytes saved per sample for the backward");
}

void add_machine(CLI::App& options, SimulateArguments& simulate) {
  const auto number = [&](const char* name, double& value, const char* text) {
    return add_number(options, name, value, text, 0.0, 1e9);
  };
  CLI::Option* const links = options.add_option(
      "--links", simulate.links, "GB/s[:ms] for each of --devices' levels, by commas, as for plan");
  options.add_option("--devices", simulate.devices,
                     "8, or 2x8: servers x devices; unset: as needed");
  number("--link-latency", simulate.link_latency_ms, "ms of a message")->excludes(links);
  number("--link-gbps", simulate.link_gbps, "Gbit/s of a link; 0: bytes cost nothing")
      ->excludes(links);
  number("--delay", simulate.input.delay_ms,
         "Extra latency of each message in ms, as of a long cable");
  options.add_option("--overlap", simulate.overlap, "What overlaps with computation")
      ->capture_default_str()
      ->check(CLI::IsMember({"none", "transfers", "all"}));
  number("--overhead", simulate.input.overhead_ms, "ms to launch an action");
  add_number(options, "--contention", simulate.input.contention,
             "Computing takes so many times longer", 1e-3, 1e3)
      ->capture_default_str();
  add_number(options, "--cores", simulate.input.cores,
             "Cores to which workers are assigned round-robin; 0: one for each", 0, 65536);
  number("--fps", simulate.fps, "Frames a second of a live source; 0: not live");
}

void add_options(CLI::App& options, SimulateArguments& simulate) {
  add_schedule_choice(options, simulate, 4096);
  add_number(options, "--samples", simulate.input.samples,
             "How many; unset: enough for a steady period", 1, 10'000'000);
  add_costs(options, simulate);
  add_machine(options, simulate);
  options.add_option("--trace", simulate.trace, "Where to write a trace for Chrome or Perfetto");
  options.add_option("--svg", simulate.svg, "Where to draw the time line");
  add_number(options, "--until", simulate.until_ms, "ms that the drawing shows", 0.0, 1e12);
  options.add_option("--json", simulate.json, "Where to write the results");
}

}  // namespace

const Command kSimulate = {
    70, "simulate",
    "Simulate a schedule with given costs: timeline, utilisation, bubble, memory, rate, latency",
    add<SimulateArguments, add_options, simulate_costs>};

}  // namespace millrace::cli
