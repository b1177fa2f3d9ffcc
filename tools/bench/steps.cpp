#include <ATen/ATen.h>

#include <map>
#include <nlohmann/json.hpp>

#include "capture/program/kernels/kernels.h"
#include "engine/pipeline/pinning.h"
#include "engine/plan/balance.h"
#include "engine/plan/cost_model.h"
#include "engine/schedule/launch_groups.h"
#include "engine/schedule/registry.h"
#include "engine/simulate/simulator.h"
#include "engine/simulate/timeline.h"
#include "engine/trainer/operations.h"
#include "engine/trainer/profiler.h"
#include "engine/trainer/trainer.h"
#include "tools/app/provenance.h"
#include "tools/bench/bench_arm.h"
#include "tools/bench/measure.h"

namespace millrace::bench {
namespace {

/// The arm's options, without weights, and without a cut unless it names one.
engine::TrainerOptions options_of(const Json& arm) {
  static const std::map<std::string, engine::Capture> captures = {
      {"auto", engine::Capture::automatic},
      {"graph", engine::Capture::graph},
      {"eager", engine::Capture::eager}};
  engine::TrainerOptions options;
  options.schedule = arm.value("schedule", options.schedule);
  options.stages = arm.value("stages", 1);
  options.microbatches = arm.value("microbatches", options.microbatches);
  options.recompute = arm.value("recompute", false);
  options.cut = arm.value("cut", std::vector<int>());
  options.threads = arm.value("threads", std::vector<int>());
  options.capture = captures.at(arm.value("capture", "auto"));
  options.sample = {3, arm.at("size"), arm.at("size")};
  stages::ModelSpec model = model_of(arm.at("network"));
  model.channels_last = arm.value("channels_last", false);
  options.network = stages::build_network(model, options.sample);
  return options;
}

/// The question's arm. Set up once and reused, so that all turns measure the same.
const engine::TrainerOptions& arm_of(const Json& question) {
  static std::map<std::string, engine::TrainerOptions> arms;
  const Json& arm = question.at("arm");
  auto found = arms.find(arm.dump());
  if (found == arms.end()) {
    engine::TrainerOptions options = options_of(arm);
    options.weights = stages::initial_state(*options.network, 0);
    if (options.cut.empty()) options.cut = engine::Trainer(options).now().cut;
    found = arms.emplace(arm.dump(), std::move(options)).first;
  }
  return found->second;
}

engine::plan::Link link_of(const Json& question) {
  const Json link = question.value("link", Json::object());
  return {link.value("latency_ms", 0.0), link.value("bytes_per_ms", 0.0)};
}

/// Median milliseconds per sample, over whole minibatches of `group` samples, since steps differ
/// within one that is flushed. The first quarter is warm-up.
double period_ms(const std::vector<Clock::time_point>& at, std::size_t group) {
  std::vector<double> periods;
  for (std::size_t m = at.size() / 4 / group * group; m + group < at.size(); m += group)
    periods.push_back(std::chrono::duration<double, std::milli>(at[m + group] - at[m]).count() /
                      double(group));
  return median(periods);
}

/// Milliseconds of a step of all stages, which update once in `group` samples.
double total_ms(const std::vector<engine::plan::StageCosts>& stages, int group = 1) {
  engine::plan::StepCosts sum;
  for (const engine::plan::StageCosts& stage : stages) {
    engine::plan::StepCosts ms = stage.ms;
    ms.update /= group;
    sum += ms;
  }
  return sum.total();
}

/// The costs of modules as their steps will run: if recorded, the best times of a step program's
/// operators; if eager, medians.
engine::plan::Profile profile_of(const engine::TrainerOptions& options) {
  if (options.capture == engine::Capture::eager) {
    return engine::measure_profile(options, {.repeats = 3, .most_repeats = 3});
  }
  engine::plan::Profile profile;
  for (const double ms : engine::module_times_by_programs(options)) {
    const stages::ImageShape& made = options.network->shape(int(profile.modules.size()));
    const double bytes = double(made.elements() * 4);
    profile.modules.push_back(
        {.forward = {.median = ms}, .bytes = {.activation = bytes, .gradient = bytes}});
  }
  return profile;
}

}  // namespace

/// {"arm"}: {"cut", "workers", "programs"}: cut, number of workers, whether steps are programs.
const Question kDescribe("describe", [](const Json& question) -> Json {
  const engine::TrainerOptions& arm = arm_of(question);
  return {{"cut", arm.cut},
          {"workers", engine::schedule_of(arm).workers.size()},
          {"programs", engine::runs_programs(arm, 0)}};
});

/// {"arm", "seconds"}: figures of the running pipeline.
const Question kTurn("turn", [](const Json& question) -> Json {
  constexpr int kLeastUpdates = 8;
  const engine::TrainerOptions& arm = arm_of(question);
  const int group = engine::schedule_of(arm).group;
  engine::Trainer trainer(arm);
  const auto predicted = take_turn(trainer, question.at("seconds"), kLeastUpdates * group);
  const engine::Reading r = trainer.monitor().read();
  const int slowest = r.bottleneck_stage;
  const double handoff = r.handoff[slowest];
  return {{"step_ms", r.step_p50},
          {"period_ms", period_ms(predicted, std::size_t(group))},
          {"T_ms", r.T},
          {"T_over_N_ms", r.T_over_N},
          {"bottleneck_ms", r.bottleneck},
          {"handoff_percent", 100 * handoff / (handoff + r.stage[slowest])},
          {"latency_p50_ms", r.latency_p50},
          {"latency_p99_ms", r.latency_p99}};
});

/// {"arm", "seconds", "link"}: stages measured alone, and the step that the simulator predicts from
/// them. With "delay_ms" and "message_ms": over ranks, where each end of a message takes half of
/// "message_ms".
const Question kPredict("predict", [](const Json& question) -> Json {
  const engine::TrainerOptions& options = arm_of(question);
  const auto stages = engine::measure_stages(options, question.at("seconds"));
  engine::Schedule schedule = engine::schedule_of(options);
  Json figures = {{"work_ms", total_ms(stages, schedule.group)}, {"stages_ms", total_ms(stages)}};
  if (!question.contains("delay_ms")) {
    figures["predicted_ms"] =
        engine::predict(schedule, stages, link_of(question), engine::usable_cores());
    return figures;
  }
  schedule = engine::for_recording(schedule);
  engine::SimulationInput input{.samples = engine::enough_samples(schedule), .stages = stages};
  input.delay_ms = question["delay_ms"];
  input.cores = engine::usable_cores();
  input.machine.levels.front().link.latency_ms = question.at("message_ms").get<double>() / 2;
  figures["predicted_ms"] = simulate(schedule, input).period_ms;
  return figures;
});

/// {"arm", "link"}: the prediction from single modules' costs, cut by them, one core per stage.
const Question kPredictByModules("predict_by_modules", [](const Json& question) -> Json {
  static std::map<std::string, engine::plan::Profile> profiles;  // by network, size and capture
  const Json& arm = question.at("arm");
  engine::TrainerOptions options = options_of(arm);
  const std::string name = Json{arm["network"], arm["size"], arm.at("capture")}.dump();
  if (!profiles.contains(name)) profiles[name] = profile_of(options);
  std::vector<double> costs;
  for (const engine::plan::ModuleProfile& module : profiles[name].modules)
    costs.push_back(module.ms().total());
  if (options.stages > int(costs.size())) return nullptr;
  options.cut = engine::balanced_cut(costs, options.stages);
  const auto stages = engine::plan::stage_costs(profiles[name], options.cut);
  double slowest = 0;
  for (const engine::plan::StageCosts& stage : stages)
    slowest = std::max(slowest, stage.ms.total());
  return {{"cut", options.cut},
          {"step_ms", engine::predict(engine::schedule_of(options), stages, link_of(question))},
          {"T_ms", total_ms(stages)},
          {"slowest_ms", slowest}};
});

/// {"arm"}: [{"versions", "samples", "weights", "stashes", "activations", "total"}], in bytes.
const Question kMemory("memory", [](const Json& question) -> Json {
  constexpr int kMinibatches = 4;
  const engine::TrainerOptions& arm = arm_of(question);
  const engine::Schedule schedule = engine::schedule_of(arm);
  const int samples = kMinibatches * arm.microbatches;
  const std::vector<std::int64_t> kept = engine::draw_staircase(schedule, samples).activations;
  Json stages = Json::array();
  engine::Trainer trainer(arm);
  take_turn(trainer, 0, samples);
  for (const engine::StageFacts& facts : trainer.facts()) {
    const engine::StageMemory& bytes = facts.memory;
    const int stage = int(stages.size());
    stages.push_back({{"versions", schedule.versions_of(stage)},
                      {"samples", kept[stage]},
                      {"weights", bytes.weights},
                      {"stashes", bytes.stashes},
                      {"activations", bytes.activations},
                      {"total", bytes.total()}});
  }
  return stages;
});

/// {"arm"}: the share of time that workers wait if stages are equal and a backward is two forwards.
const Question kEqualStagesBubble("equal_stages_bubble", [](const Json& question) -> Json {
  const engine::Schedule schedule = engine::schedule_of(options_of(question.at("arm")));
  engine::SimulationInput input{.samples = engine::enough_samples(schedule)};
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const double behind = stage > 0 ? 1 : 0;  // the first stage needs no input gradient
    input.stages.push_back(
        {.ms = {.forward = 1, .input_gradient = behind, .weight_gradient = 2 - behind}});
  }
  const double most = double(schedule.workers.size()) * simulate(schedule, input).period_ms;
  return 1 - total_ms(input.stages) / most;
});

/// {"arm"}: floating-point operations of a step's multiply-adds.
const Question kFlops("flops", [](const Json& question) -> Json {
  engine::TrainerOptions options = arm_of(question);
  options.cut.clear();
  double sum = 0;
  for (const auto& operation : engine::operations_of(engine::predict_stages(options)))
    sum += operation.flops;
  return sum;
});

/// {}: FLOP/s of one core's multiply-adds on registers.
const Question kPeak("peak", [](const Json&) -> Json { return kernels::fma_peak(); });

/// {}: {"latency_ms", "bytes_per_ms"}: a hand-off between cores, measured now.
const Question kLink("link", [](const Json&) -> Json {
  const engine::plan::Link link = engine::plan::fit_link(engine::measure_hand_off().points);
  return {{"latency_ms", link.latency_ms}, {"bytes_per_ms", link.bytes_per_ms}};
});

/// {}: {"cores", "provenance"}: this machine.
const Question kMachine("machine", [](const Json&) -> Json {
  return {{"cores", engine::usable_cores()},
          {"provenance", app::provenance(engine::usable_cores())}};
});

}  // namespace millrace::bench
