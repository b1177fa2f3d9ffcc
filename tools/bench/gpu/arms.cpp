#include "tools/bench/gpu/arms.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "capture/devices.h"
#include "engine/plan/balance.h"
#include "engine/trainer/operations.h"
#include "engine/trainer/profiler.h"
#include "tools/app/provenance.h"
#include "tools/bench/gpu/bare_step.h"
#include "tools/bench/gpu/engine_side.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;
using engine::Clock;
using engine::now_ms;

/// One way to do an arm's work, and its figure, measured for about `seconds`.
struct Way {
  std::string name;
  std::function<double(double seconds)> measure;
};

Json in_turn(const std::vector<Way>& ways, const Json& question) {
  std::map<std::string, std::vector<double>> values;
  for (int turn = 0; turn < question.value("turns", 1); ++turn) {
    for (const Way& way : ways)
      values[way.name].push_back(way.measure(question.at("seconds").get<double>()));
    values["ratio"].push_back(values[ways[0].name].back() / values[ways[1].name].back());
  }
  Json figures;
  for (const auto& [name, of_turns] : values) figures[name] = median(of_turns);
  figures["turns"] = values;
  return figures;
}

/// Multiplications per module. Counted, so that a network is always cut the same way.
std::vector<double> multiplications(const stages::Network& network) {
  std::vector<double> all;
  for (int module = 0; module < network.size(); ++module) {
    const stages::ImageShape& shape = network.shape(module);
    double each = double(shape.channels);  // some for an activation, too
    for (const stages::ParameterSpec& parameter : network.parameters(module, module + 1)) {
      double weights = 1;
      for (const std::int64_t length : parameter.shape) weights *= double(length);
      each += weights;
    }
    all.push_back(each * double(shape.height * shape.width));
  }
  return all;
}

engine::TrainerOptions options_of(const GpuBench& how, const Json& question, int stages) {
  engine::TrainerOptions options{
      .sample = {3, question.at("height"), question.at("width")},
      .numerics = {.precision = kernels::Precision(
                       std::ranges::find(kernels::kPrecisionNames,
                                         question.value("precision", "float32")) -
                       kernels::kPrecisionNames)},
      .capture = engine::Capture::graph};
  options.stages = stages;
  options.network = stages::build_network(model_of(question.at("network")), options.sample);
  options.module_ms = multiplications(*options.network);  // only proportions matter
  options.cut = engine::balanced_cut(options.module_ms, stages);
  options.devices.assign(std::size_t(stages), how.device);
  options.weights = stages::initial_state(*options.network, 0);
  options.make_backend = how.make_backend;
  return options;
}

/// Milliseconds per launch of a whole network's work, with many launches back to back.
double back_to_back_ms(BareStep& step, double seconds) {
  const auto round = [&](int launches) {
    const double begin = now_ms();
    for (int i = 0; i < launches; ++i) step.launch();
    step.synchronize();
    return (now_ms() - begin) / launches;
  };
  round(1);
  const int launches = std::clamp(int(20 / round(1)), 4, 64);  // fewer than fill the queue
  return median(repeated(seconds, [&] { return round(launches); }));
}

/// One launch from call to end, on an idle device.
double lone_launch_ms(BareStep& step, double seconds) {
  return median(repeated(seconds, [&] {
    for (const auto rested = Clock::now() + kRest; Clock::now() < rested;) {
    }
    const double begin = now_ms();
    step.launch();
    step.synchronize();
    return now_ms() - begin;
  }));
}

using Arm = Json (*)(const GpuBench& how, const Json& question);

Json step_arm(const GpuBench& how, const Json& question) {
  const engine::TrainerOptions options = options_of(how, question, 1);
  const auto alone = std::make_shared<BareStep>(options, BareWork::compute);
  return in_turn(
      {{"engine_ms", [fps = engine_fps(options)](double seconds) { return 1e3 / fps(seconds); }},
       {"step_ms", [=](double seconds) { return back_to_back_ms(*alone, seconds); }}},
      question);
}

Json stages_arm(const GpuBench& how, const Json& question) {
  return in_turn({{"staged_fps", engine_fps(options_of(how, question, question.at("stages")))},
                  {"one_fps", engine_fps(options_of(how, question, 1))}},
                 question);
}

Json processor_time_arm(const GpuBench& how, const Json& question) {
  const engine::TrainerOptions options = options_of(how, question, 1);
  const auto called = called_step_us(options);
  const auto bare = std::make_shared<BareStep>(options);
  const auto launch_us = [=] {
    const double begin = processor_us();
    for (int i = 0; i < kBatch; ++i) bare->launch();
    const double us = (processor_us() - begin) / kBatch;
    bare->synchronize();
    return us;
  };
  return in_turn(
      {{"engine_us", called},
       {"launch_us", [=](double seconds) { return median(repeated(seconds, launch_us)); }}},
      question);
}

Json latency_arm(const GpuBench& how, const Json& question) {
  const engine::TrainerOptions options = options_of(how, question, question.at("stages"));
  const auto forward = std::make_shared<BareStep>(options, BareWork::forward);
  const auto tail = std::make_shared<double>();  // of the engine's last turn
  const auto engine_ms = [=](double seconds) {
    std::vector<double> ms = lone_frames_ms(options, seconds);
    const auto rank = ms.begin() + std::ptrdiff_t(0.999 * double(ms.size() - 1));
    std::nth_element(ms.begin(), rank, ms.end());
    *tail = *rank / median(ms);
    return median(ms);
  };
  return in_turn({{"engine_ms", engine_ms},
                  {"bare_ms", [=](double seconds) { return lone_launch_ms(*forward, seconds); }},
                  {"tail", [=](double) { return *tail; }}},
                 question);
}

Json profile_arm(const GpuBench& how, const Json& question) {
  const engine::TrainerOptions options = options_of(how, question, 1);
  const auto alone = std::make_shared<BareStep>(options, BareWork::compute);
  const auto modules_ms = [=](double) {
    const engine::plan::Profile profile =
        engine::measure_profile(options, {.device = options.devices[0], .recorded = true});
    double ms = 0;
    for (const engine::plan::ModuleProfile& module : profile.modules) ms += module.ms().total();
    return ms;
  };
  return in_turn({{"modules_ms", modules_ms},
                  {"step_ms", [=](double seconds) { return back_to_back_ms(*alone, seconds); }}},
                 question);
}

Json kernels_arm(const GpuBench& how, const Json& question) {
  capture::use_repeatable_kernels();
  Json operations = Json::array();
  const auto stages = engine::stage_operations(options_of(how, question, 1), /*rounds=*/5);
  for (const capture::OperationInfo& o : stages[0]) {
    operations.push_back({{"name", o.name},
                          {"kernel", o.kernel},
                          {"us", double(o.best_ns) / 1e3},
                          {"flops", o.flops},
                          {"bytes", o.bytes}});
  }
  return {{"operations", operations}};
}

}  // namespace

Json answer(const GpuBench& how, const Json& question) {
  static const std::map<std::string, Arm> arms = {
      {"step", step_arm},
      {"stages", stages_arm},
      {"processor time", processor_time_arm},
      {"latency", latency_arm},
      {"profile", profile_arm},
      {"kernels", kernels_arm},
      {"provenance", [](const GpuBench&, const Json&) { return app::provenance(1); }}};
  try {
    return arms.at(question.at("arm"))(how, question);
  } catch (const std::exception& error) {
    const std::string text = error.what();  // LibTorch appends its source position
    return {{"error", text.substr(0, text.find('\n'))}};
  }
}

}  // namespace millrace::bench
