#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "capture/program/program.h"
#include "capture/program/recording.h"
#include "engine/trainer/operations.h"
#include "engine/trainer/trainer.h"
#include "tools/app/assembly.h"
#include "tools/bench/measure.h"

namespace millrace::bench {
namespace {

using program::Call;

/// Sizes of the tensors among the call's arguments, as "1x64x16x16 64x64"; ' after one that is not
/// contiguous.
std::string shapes_of(const Call& call) {
  std::string text;
  program::each_tensor(call.arguments, [&](const at::Tensor& tensor) {
    if (!text.empty()) text += " ";
    for (std::int64_t d = 0; d < tensor.dim(); ++d)
      text += (d > 0 ? "x" : "") + std::to_string(tensor.size(d));
    if (!tensor.is_contiguous()) text += "'";
  });
  return text;
}

/// A step's calls but for its update, which is not LibTorch's, by operator and shapes.
std::map<std::pair<std::string, std::string>, std::vector<Call>> calls_of(
    engine::TrainerOptions options) {
  options.stages = 1;
  options.schedule = "sequential";
  options.cut.clear();
  options.correction = {};
  options.weights = stages::initial_state(*options.network, options.seed);
  stages::Stage stage = std::move(engine::build_stages(options, engine::schedule_of(options))[0]);
  const at::Tensor target = at::rand(options.network->output().sizes());
  std::map<std::pair<std::string, std::string>, std::vector<Call>> found;
  const auto note = [&](const std::function<void()>& body) {
    for (Call& call : program::record_calls(body))
      if (call.name().starts_with("aten::"))
        found[{call.name(), shapes_of(call)}].push_back(std::move(call));
  };
  engine::run_step(stage, {{at::rand(options.sample.sizes())}, target}, 1, note);
  return found;
}

/// What the call costs alone: by a program and by LibTorch, in turns for `seconds`, the best of
/// each. Null for a view, which costs nothing.
Json costs_of(const Call& call, double seconds) {
  constexpr int kLeast = 6;
  const c10::NoGradGuard no_grad;
  std::vector<c10::IValue> results;  // held, or a program would not compute them
  const auto run = [&] {
    results = call.arguments;
    call.operation.callBoxed(results);
  };
  program::Arena arena;
  program::Program ours(run, arena);
  std::string kernels;
  for (const capture::OperationInfo& operation : ours.operations())
    kernels += (kernels.empty() ? "" : ", ") + operation.name;
  if (kernels.empty()) return nullptr;
  double best[] = {INFINITY, INFINITY};
  const double end = engine::now_ms() + 1e3 * seconds;
  for (int n = 0; n < kLeast || engine::now_ms() < end; ++n) {
    const double start = engine::now_ms();
    n % 2 == 0 ? ours.run() : run();
    best[n % 2] = std::min(best[n % 2], engine::now_ms() - start);
  }
  return {{"ours_us", 1e3 * best[0]}, {"libtorch_us", 1e3 * best[1]}, {"kernels", kernels}};
}

}  // namespace

/// {"config", "seconds"}: [{"operator", "shapes", "times", "ours_us", "libtorch_us", "kernels"}], a
/// row for each distinct operator call of a step of the config's network, on one core.
const Question kOperations("operations", [](const Json& question) -> Json {
  at::set_num_threads(1);
  const app::Config config = app::load_config(question.at("config"), {});
  Json rows = Json::array();
  for (const auto& [key, calls] : calls_of(app::assemble(config, app::sample_of(config)))) {
    Json row = {{"operator", key.first}, {"shapes", key.second}, {"times", calls.size()}};
    const Json costs = costs_of(calls.front(), question.at("seconds"));
    if (costs.is_null()) continue;
    row.update(costs);
    rows.push_back(std::move(row));
  }
  return rows;
});

}  // namespace millrace::bench
