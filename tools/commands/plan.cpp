// `millrace plan`: the best cut, schedule and use of devices for a profile, and why.
#include <nlohmann/json.hpp>  // results

#include <iostream>   // results
#include <stdexcept>  // std::invalid_argument

#include "engine/plan/machine_text.h"
#include "engine/plan/text.h"
#include "engine/schedule/schedule.h"
#include "io/files/whole_file.h"
#include "tools/config/commands.h"
#include "tools/config/profile_read.h"

namespace millrace::tools {
namespace {

using engine::plan::Profile;
using engine::plan::Request;

bool is_config(const std::string& path) {
  return path.ends_with(".toml");
}

/// A config's own choices hold where the command line makes none.
struct Defaults {
  std::string schedule = "partime";
  int microbatches = 4;
  int virtual_stages = 2;
  double fps = 0;
};

Defaults defaults_of(const Config& config) {
  return {config.pipeline.schedule, config.pipeline.microbatches, config.pipeline.virtual_stages,
          config.monitor.fps};
}

/// "any": every schedule there is.
std::vector<std::string> schedules_of(const PlanArguments& arguments, const Defaults& defaults) {
  if (arguments.schedules.empty()) return {defaults.schedule};
  if (arguments.schedules == std::vector<std::string>{"any"}) return engine::schedule_names();
  return arguments.schedules;
}

std::vector<int> or_default(const std::vector<std::int64_t>& given, int other) {
  if (given.empty()) return {other};
  return {given.begin(), given.end()};
}

Request request_of(const PlanArguments& arguments, const Defaults& defaults,
                   const Profile& profile) {
  Request request;
  request.machine = engine::plan::parse_machine(
      arguments.devices, arguments.links, arguments.overlap, 1e9 * arguments.memory_gb, profile);
  request.schedules = schedules_of(arguments, defaults);
  request.microbatches = or_default(arguments.microbatches, defaults.microbatches);
  request.virtual_stages = or_default(arguments.virtual_stages, defaults.virtual_stages);
  request.recompute = arguments.recompute;
  request.replicas = arguments.replicas;
  request.threads = arguments.threads;
  request.most_tensor = int(arguments.most_tensor);
  request.most_copies = int(arguments.most_copies);
  request.stages = int(arguments.stages);
  request.fps = arguments.fps > 0 ? arguments.fps : defaults.fps;
  return request;
}

using Json = nlohmann::ordered_json;

Json cut_json(const engine::plan::Cut& cut) {
  Json stages = Json::array();
  for (const engine::plan::Stage& stage : cut.stages) {
    stages.push_back({{"begin", stage.begin},
                      {"end", stage.end},
                      {"place", stage.place},
                      {"replicas", stage.replicas},
                      {"threads", stage.threads}});
  }
  return {{"period_ms", cut.period_ms}, {"bottleneck", cut.bottleneck}, {"stages", stages}};
}

Json plan_json(const engine::plan::Plan& plan) {
  const engine::plan::Method& method = plan.method;
  Json memory = Json::array();
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
          {"cut", cut_json(plan.cut)},
          {"sample_ms", plan.outcome.sample_ms},
          {"frames_a_second", plan.outcome.frames_a_second},
          {"bubble", plan.outcome.bubble},
          {"latency_ms", plan.outcome.latency_ms},
          {"T_ms", plan.outcome.T_ms},
          {"peak_bytes", plan.outcome.peak_bytes},
          {"memory", memory},
          {"gradient_age", plan.outcome.gradient_age}};
}

Json planned_json(const Profile& profile, const engine::plan::Planned& planned) {
  Json plans = Json::array();
  for (const engine::plan::Plan& plan : planned.ranked) plans.push_back(plan_json(plan));
  return {{"network", profile.network},
          {"modules", profile.modules.size()},
          {"plans", plans},
          {"next_cut", planned.next_cut ? cut_json(*planned.next_cut) : Json()}};
}

}  // namespace

int plan_command(const PlanArguments& arguments) {
  Defaults defaults;
  Profile profile;
  if (is_config(arguments.input)) {
    const Config config = load_config(arguments.input, arguments.settings);
    defaults = defaults_of(config);
    profile = profile_of(config);
  } else {
    profile = read_profile(arguments.input, int(arguments.frames));
  }
  Request request;
  engine::plan::Planned planned;
  try {
    request = request_of(arguments, defaults, profile);
    planned = engine::plan::make_plan(profile, request);
  } catch (const std::invalid_argument& error) {
    throw ConfigError(error.what());
  } catch (const engine::plan::PlanError& error) {
    throw ConfigError(error.what());
  }
  const std::string table =
      engine::plan::pipeline_toml(planned.ranked.front(), request.machine, arguments.kind);
  std::cout << engine::plan::plan_text(profile, request, planned) << "\n" << table;
  if (!arguments.output.empty()) io::write_whole(arguments.output, table);
  if (!arguments.json.empty())
    io::write_whole(arguments.json, planned_json(profile, planned).dump(1) + "\n");
  return kDone;
}

}  // namespace millrace::tools
