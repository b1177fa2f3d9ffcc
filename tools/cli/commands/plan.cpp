#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "engine/format.h"
#include "engine/plan/plan_text.h"
#include "engine/schedule/registry.h"
#include "engine/simulate/simulator.h"
#include "io/files/whole_file.h"
#include "tools/app/assembly.h"
#include "tools/app/config/profile_read.h"
#include "tools/app/outputs/outputs.h"
#include "tools/cli/commands/command.h"

namespace millrace::cli {
namespace {

constexpr int kManyDevices = 256;       // devices; plans with replicas on more take over a second
constexpr double kMostSimulated = 2e6;  ///< samples x stages
constexpr std::int64_t kMostReplay = 1 << 24;  ///< samples, same as for replay.size

struct PlanArguments {
  std::string input;  ///< profile (JSON, or PipeDream's graph.txt), or config (.toml) to measure
  std::vector<std::string> settings;  ///< of the config
  std::string devices = "2";          ///< "8", or "2x8": servers x devices
  std::string links;                  ///< GB/s[:ms] per level, as "3.125,30:0.01"
  std::string overlap = "none";       ///< none | transfers | all
  double memory_gb = 0;               ///< per device; 0: no limit
  std::int64_t replay = 0;            ///< least number of samples to store; 0: none
  /// Empty and 0: from the config; the options above describe the machine. Schedules may have
  /// "any".
  engine::plan::Request request{.schedules = {}, .microbatches = {}, .virtual_stages = {}};
  int frames = 1;            ///< graph.txt: frames that its figures cover
  std::string kind = "cpu";  ///< name for devices in the table
  std::string output;
  std::string json;
};

using engine::plan::Profile, engine::plan::Request;

/// Fills options left out from the config.
Request request_of(const PlanArguments& arguments, const app::Config& config,
                   const Profile& profile) {
  Request request = arguments.request;
  request.machine = engine::plan::parse_machine(
      arguments.devices, arguments.links, arguments.overlap, 1e9 * arguments.memory_gb, profile);
  if (request.schedules.empty()) request.schedules = {config.pipeline.schedule};
  if (std::ranges::find(request.schedules, "any") != request.schedules.end())
    request.schedules = engine::schedule_names();
  if (request.microbatches.empty()) request.microbatches = {config.pipeline.microbatches};
  if (request.virtual_stages.empty()) request.virtual_stages = {config.pipeline.virtual_stages};
  if (!(request.fps > 0)) request.fps = config.monitor.fps;
  return request;
}

bool is_replicated(const engine::plan::Stage& stage) {
  return stage.replicas > 1;
}

/// A remark if stages would also learn by losses of their own, from heads that a profile lacks.
std::string heads_text(app::Config config, const engine::plan::Plan& plan) {
  config.pipeline.schedule = plan.method.schedule;
  config.pipeline.stages = int(plan.cut.stages.size());
  config.pipeline.virtual_stages = plan.method.virtual_stages;
  config.pipeline.cut = engine::plan::begins_of(plan.cut.stages);
  if (std::ranges::any_of(plan.cut.stages, is_replicated)) return "";
  const std::string kind = app::assemble(config, app::sample_of(config)).correction.kind;
  if (kind != "local" && kind != "deep-supervision") return "";
  const char* const left_out = kind == "local"
                                   ? "its time is not included, and its gradients are fresh"
                                   : "its time and that of a second forward are not included";
  return "heads     correction.kind \"" + kind + "\" gives each stage but the last a head; " +
         left_out + "\n";
}

/// The plan in the simulator, where stages also wait for each other; none where a worker takes more
/// than one device, or if it would take long. `fps`: of a live source; 0: samples are always ready.
std::optional<engine::Simulation> simulated(const Profile& profile, const Request& request,
                                            const engine::plan::Plan& plan, double fps = 0) {
  const engine::plan::Method& method = plan.method;
  const std::vector<engine::plan::Stage>& stages = plan.cut.stages;
  if (method.tensor > 1 || method.copies > 1 ||
      std::ranges::any_of(stages, [](const auto& stage) { return stage.threads > 1; }))
    return {};
  const double most = kMostSimulated / double(stages.size());  // samples
  if (method.microbatches > most / 8) return {};
  engine::ScheduleSpec spec = method.spec(int(stages.size()));
  if (std::ranges::any_of(stages, is_replicated)) {
    if (!engine::schedule_entry(method.schedule).replicas) return {};
    for (const engine::plan::Stage& stage : stages) spec.replicas.push_back(stage.replicas);
  }
  const engine::Schedule schedule = engine::make_schedule(spec);
  const std::int64_t samples = engine::enough_samples(schedule);
  if (double(samples) > most) return {};
  return engine::simulate(
      schedule, {.samples = samples,
                 .stages = engine::plan::stage_costs(profile, engine::plan::begins_of(stages)),
                 .input_bytes = profile.input_bytes,
                 .frames = profile.frames,
                 .machine = request.machine,
                 .source_period_ms = fps > 0 ? 1e3 * profile.frames / fps : 0});
}

using Json = nlohmann::ordered_json;

/// Prints how many samples can be stored for replay, and the time left to train on them: the most
/// that the memory limit allows, without a limit as many as requested. Adds them to the results.
void add_replay(std::int64_t size, const Request& request, const engine::plan::Plan& plan,
                double sample_bytes, std::string& table, Json& json) {
  const double room = request.machine.memory_bytes - plan.outcome.memory.front().total();
  if (request.machine.memory_bytes > 0)
    size = std::min(kMostReplay, size + std::int64_t(std::max(0.0, room) / sample_bytes));
  const double bytes = double(size) * sample_bytes;
  table += "\n[replay]\nkind = \"reservoir\"\nsize = " + std::to_string(size) + "\n";
  json["replay"] = {{"size", size}, {"bytes", bytes}};
  std::cout << "replay    " << size << " samples, " << engine::plan::bytes_text(bytes)
            << " beside the first stage";
  if (request.fps > 0) {
    const double share = std::max(0.0, 1 - request.fps / plan.outcome.frames_a_second);
    json["replay"]["share"] = share;
    std::cout << engine::format("; time for %.3g of them a frame, %.3g of all samples",
                                share / (1 - share), share);
  }
  std::cout << "\n";
}

Json plan_json(const engine::plan::Plan& plan) {
  const engine::plan::Method& method = plan.method;
  Json stages = Json::array(), memory = Json::array();
  for (const engine::plan::Stage& stage : plan.cut.stages) {
    stages.push_back({{"begin", stage.begin},
                      {"end", stage.end},
                      {"place", stage.place},
                      {"replicas", stage.replicas},
                      {"threads", stage.threads}});
  }
  for (const engine::plan::StageMemory& stage : plan.outcome.memory) {
    memory.push_back(
        {{"versions", stage.versions}, {"samples", stage.samples}, {"total_bytes", stage.total()}});
  }
  return {{"schedule", method.schedule},
          {"microbatches", method.microbatches},
          {"virtual_stages", method.virtual_stages},
          {"recompute", method.recompute},
          {"tensor", method.tensor},
          {"copies", method.copies},
          {"cut",
           {{"period_ms", plan.cut.period_ms},
            {"bottleneck", plan.cut.bottleneck},
            {"stages", stages}}},
          {"sample_ms", plan.outcome.sample_ms},
          {"frames_a_second", plan.outcome.frames_a_second},
          {"bubble", plan.outcome.bubble},
          {"latency_ms", plan.outcome.latency_ms},
          {"T_ms", plan.outcome.T_ms},
          {"peak_bytes", plan.outcome.peak_bytes},
          {"memory", memory},
          {"gradient_age", plan.outcome.gradient_age}};
}

int plan(const PlanArguments& arguments) {
  app::require_other_files({{"--output", arguments.output}, {"--json", arguments.json}},
                           {arguments.input});
  app::Config config;
  Profile profile;
  const bool measured = arguments.input.ends_with(".toml");
  if (measured) {
    config = app::load_config(arguments.input, arguments.settings);
    profile = app::profile_of(config);
  } else {
    profile = app::read_profile(arguments.input, arguments.frames);
  }
  // The target is as large as the output; autoencode's target is the input itself.
  const bool apart = !measured || config.task.kind != "autoencode";
  const double sample_bytes =
      profile.input_bytes + (apart ? profile.modules.back().bytes.activation : 0);
  Request request;
  std::vector<engine::plan::Plan> plans;
  try {
    request = request_of(arguments, config, profile);
    if (arguments.replay > 0 && profile.input_bytes <= 0)
      throw app::ConfigError("--replay: " + arguments.input +
                             " does not say how large a sample is");
    request.machine.replay_bytes = double(arguments.replay) * sample_bytes;
    if (const int devices = request.machine.devices(); devices > kManyDevices)
      std::cerr << devices << " devices take a while\n";
    plans = engine::plan::make_plans(profile, request);
  } catch (const std::invalid_argument& error) {
    throw app::ConfigError(error.what());
  }
  const engine::plan::Plan& best = plans.front();
  std::string table = engine::plan::pipeline_toml(best, request.machine, arguments.kind);
  Json json = {{"network", profile.network}, {"modules", profile.modules.size()}};
  for (const engine::plan::Plan& one : plans) json["plans"].push_back(plan_json(one));
  std::cout << engine::plan::plan_text(profile, request, plans);
  if (const auto run = simulated(profile, request, best)) {
    std::cout << engine::format(
        "simulated %.4g frames a second, latency %.4g ms, with stages that wait", run->fps(),
        run->latency_p50_ms);
    const auto live = request.fps > 0 ? simulated(profile, request, best, request.fps) : run;
    if (live->dropped > 0)
      std::cout << engine::format("; at %.4g frames a second %.3g of them are dropped", request.fps,
                                  double(live->dropped) / double(live->samples + live->dropped));
    std::cout << "\n";
    json["simulated"] = {{"frames_a_second", run->fps()}, {"latency_ms", run->latency_p50_ms}};
  }
  if (measured) std::cout << heads_text(config, best);
  if (arguments.replay > 0) add_replay(arguments.replay, request, best, sample_bytes, table, json);
  if (request.most_tensor > 1 && arguments.links.empty() && !request.machine.sums)
    std::cout << "sums      between ranks are costed as thread hand-offs, which are faster: "
                 "profile with mpirun -n 2 millrace profile for real costs\n";
  std::cout << "\n" << table;
  if (!arguments.output.empty()) io::write_whole(arguments.output, table);
  if (!arguments.json.empty()) io::write_whole(arguments.json, json.dump(1) + "\n");
  return kDone;
}

void add_options(CLI::App& options, PlanArguments& arguments) {
  Request& request = arguments.request;
  options
      .add_option("input", arguments.input,
                  "Profile (JSON or PipeDream's graph.txt), or config (.toml) to measure")
      ->required();
  add_set(options, arguments.settings);
  options.add_option("--devices", arguments.devices, "8, or 2x8: servers x devices")
      ->capture_default_str();
  options.add_option("--links", arguments.links,
                     "GB/s[:ms] for each of --devices' levels, by commas");
  options.add_option("--overlap", arguments.overlap, "What overlaps with computation")
      ->capture_default_str()
      ->check(CLI::IsMember({"none", "transfers", "all"}));
  add_number(options, "--memory", arguments.memory_gb, "GB of a device; 0: no limit", 0.0, 1e6);
  add_number(options, "--replay", arguments.replay,
             "Minimum replay samples to reserve memory for at the first stage; with --memory, all "
             "memory left over",
             std::int64_t{0}, kMostReplay);
  std::vector<std::string> schedules = engine::schedule_names();
  schedules.push_back("any");
  options.add_option("--schedules", request.schedules, "To choose from, by commas; or any")
      ->delimiter(',')
      ->check(CLI::IsMember(schedules));
  add_number(options, "--microbatches", request.microbatches, "Samples an update, to choose from",
             1, 65536);
  add_number(options, "--virtual-stages", request.virtual_stages, "interleaved: to choose from", 1,
             1024);
  options.add_flag("--recompute", request.recompute, "Activations may be computed again");
  options.add_flag("--replicas", request.replicas, "Stages may be replicated");
  options.add_flag("--threads", request.threads, "Stages may take several cores");
  add_number(options, "--tensor", request.most_tensor, "Devices that may share a module", 1, 4096);
  add_number(options, "--copies", request.most_copies, "Pipelines that may run side by side", 1,
             4096);
  add_number(options, "--stages", request.stages, "Exact number; 0: the best", 0, 4096);
  add_number(options, "--frames", arguments.frames, "graph.txt: minibatch size of its figures", 1,
             1'000'000);
  add_number(options, "--fps", request.fps, "F for the rule T/N < 1/F", 0.0, 1e6);
  options.add_option("--kind", arguments.kind, "What the table calls devices: cpu | cuda")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
  options.add_option("--output", arguments.output, "Where to write the [pipeline] table");
  options.add_option("--json", arguments.json, "Where to write all plans considered");
}

}  // namespace

const Command kPlan = {
    50, "plan",
    "Find the best cut, schedule and device assignment for a profile, and write the config table",
    add<PlanArguments, add_options, plan>};

}  // namespace millrace::cli
