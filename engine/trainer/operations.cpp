#include "engine/trainer/operations.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "capture/program/recording.h"
#include "capture/program/stage_programs.h"
#include "capture/retained_bytes.h"
#include "engine/monitor/clock.h"
#include "engine/pipeline/pinning.h"
#include "engine/plan/balance.h"
#include "engine/schedule/verifier.h"

namespace millrace::engine {
namespace {

bool equal_threads(const TrainerOptions& options) {
  const std::vector<int>& all = options.threads;
  return std::adjacent_find(all.begin(), all.end(), std::not_equal_to<>()) == all.end();
}

/// Thread counts that a stage may have: those named; otherwise, where steps are programs, all
/// powers of two that leave each other stage a core, and the maximum.
std::vector<std::vector<int>> thread_choices(const TrainerOptions& options) {
  std::vector<std::vector<int>> choices;
  const bool a_worker_each = schedule_of(options).workers.size() == std::size_t(options.stages);
  const int most = usable_cores() - options.stages + 1;
  for (int stage = 0; stage < options.stages; ++stage) {
    const int named = options.threads.empty() ? 1 : options.threads[std::size_t(stage)];
    choices.push_back({std::max(named, 1)});
    if (named > 0 || !a_worker_each || !runs_programs(options, stage)) continue;
    for (int count = 2; count < most; count *= 2) choices.back().push_back(count);
    if (most > 1) choices.back().push_back(most);
  }
  return choices;
}

bool has_heads(const TrainerOptions& options) {
  const std::string& kind = options.correction.kind;
  return kind == "local" || kind == "deep-supervision";
}

/// Milliseconds of each module's step program, as a stage of its own.
std::vector<double> times_alone(TrainerOptions options, int threads) {
  options.schedule = "sequential";
  options.stages = options.network->size();
  options.threads.assign(std::size_t(options.stages), threads);
  options.cut.clear();
  for (int place = 1; place < options.stages; ++place) options.cut.push_back(place);
  std::vector<double> times;
  for (const auto& operations : stage_operations(std::move(options), 10)) {
    double ns = 0;
    for (const capture::OperationInfo& operation : operations) ns += double(operation.best_ns);
    times.push_back(ns / 1e6);
  }
  return times;
}

/// What the correction's auxiliary heads cost. `costs`: milliseconds of the modules, by threads.
HeadCosts head_costs(TrainerOptions options, const std::map<int, std::vector<double>>& costs) {
  HeadCosts found;
  options.recompute = options.correction.kind == "deep-supervision";
  found.factor = options.recompute ? 2 : 1;
  for (const auto& [threads, modules] : costs) {
    std::vector<double>& heads = found.heads[threads] = times_alone(options, threads);
    heads.resize(modules.size());
    for (std::size_t i = 0; i < heads.size(); ++i)
      heads[i] = std::max(0.0, heads[i] - found.factor * modules[i]);
  }
  return found;
}

/// Reassigns cores for the chosen threads, unless the config names cores.
void place_again(TrainerOptions& options) {
  const Schedule schedule = schedule_of(options);
  const auto placed = [&](const std::vector<int>& threads) {
    return place_stages({"cpu"}, int(schedule.workers.size()), usable_cores(), 0, threads);
  };
  if (options.devices == placed({}))
    options.devices = placed(threads_of_workers(options, schedule));
}

/// [1,C,H,W] of each sample in flight, in the form in which samples wait for stages.
std::int64_t sample_bytes(const stages::ImageShape& shape, bool as_bytes, int slots) {
  return slots * shape.elements() * (as_bytes ? 1 : 4);
}

/// Any sample, on the stage's device.
StageSample sample_for(const TrainerOptions& options, const stages::Stage& stage,
                       bool channels_last = false) {
  const stages::Network& network = *options.network;
  const stages::StageRange range = stage.range();
  const at::TensorOptions here(stage.parameters().flat().device());
  StageSample sample;
  for (const int source : network.crossing(range.begin)) {
    const at::Tensor input = at::full(network.shape(source).sizes(), 0.5, here);
    sample.inputs.push_back(input.contiguous(channels_last ? at::MemoryFormat::ChannelsLast
                                                           : at::MemoryFormat::Contiguous));
  }
  if (stage.takes_target())
    sample.target = options.target_is_input && range.first
                        ? sample.inputs[0]
                        : at::full(network.output().sizes(), 0.5, here);
  return sample;
}

}  // namespace

void run_step(stages::Stage& stage, const StageSample& sample, std::int64_t count,
              const std::function<void(const std::function<void()>&)>& run) {
  stages::Activations kept;
  run([&] {
    kept = stage.forward(sample.inputs, sample.target);
    stage.store(kept);
  });
  const stages::Adding adding{.first = !stage.supervised()};
  if (stage.supervised()) run([&] { stage.backward_local(kept); });
  if (stage.options().recompute) run([&] { stage.recompute(kept); });
  const stages::Tensors outputs = kept.outputs;
  stages::Tensors sent;  // held, or a program would not compute it
  if (stage.options().split) {
    run([&] { sent = stage.backward_input(kept, outputs, adding); });
    run([&] { stage.backward_weight(kept, adding); });
  } else {
    run([&] { sent = stage.backward(kept, outputs, adding); });
  }
  const at::TensorOptions here = stage.parameters().flat().options();
  const at::Tensor rate = at::ones({}, here.dtype(at::kDouble));
  at::Tensor skipped = at::zeros({}, here);
  run([&] { stage.update({.count = int(count)}, rate, skipped); });
}

std::vector<std::string> left_to_libtorch(const std::vector<capture::OperationInfo>& operations) {
  std::map<std::string, int> counts;
  for (const capture::OperationInfo& operation : operations) {
    if (operation.kernel == capture::kLibTorch) ++counts[operation.name];
  }
  std::vector<std::string> left;
  for (const auto& [name, count] : counts)
    left.push_back(count > 1 ? name + " x" + std::to_string(count) : name);
  return left;
}

std::vector<std::vector<capture::OperationInfo>> stage_operations(TrainerOptions options,
                                                                  int rounds) {
  at::set_num_threads(1);
  options.capture = Capture::graph;
  options.replicas.clear();
  if (options.cut.empty()) {
    if (options.stages > 1) options.threads.clear();
    options.stages = 1;
    options.schedule = "sequential";
  }
  const bool on_gpu = !options.devices.empty() && options.devices[0].cuda;
  options.devices.resize(on_gpu ? 1 : 0);
  if (on_gpu) options.devices.resize(std::size_t(options.stages), options.devices[0]);
  if (options.weights.empty())
    options.weights = stages::initial_state(*options.network, options.seed);
  const Schedule schedule = schedule_of(options);
  std::vector<stages::Stage> built = build_stages(options, schedule);
  std::vector<std::vector<capture::OperationInfo>> all;
  for (int i = 0; i < options.stages; ++i) {
    const c10::Device device = built[i].parameters().flat().device();
    const int threads = options.threads.empty() ? 1 : std::max(1, options.threads[i]);
    kernels::Team team(threads);
    program::Arena arena(device);
    program::Programs step;
    const auto run = [&](const std::function<void()>& body) {
      step.push_back(program::record_call(
          built[i], body, arena,
          {.team = threads > 1 ? &team : nullptr, .numerics = options.numerics}));
    };
    run_step(built[i], sample_for(options, built[i]), schedule.samples_an_update(i), run);
    all.push_back(timed(step, device, rounds));
  }
  return all;
}

std::vector<PredictedStage> predict_stages(TrainerOptions options) {
  at::set_num_threads(1);
  const bool records = records_any(options);
  options.replicas.clear();
  options.devices.clear();
  const stages::Network& network = *options.network;
  if (options.cut.empty()) options.cut = even_cut(network.size(), options.stages);
  if (options.weights.empty()) options.weights = stages::initial_state(network, options.seed);
  const Schedule schedule = schedule_to_run(options);
  const int slots = schedule.slots();
  const auto crossing_bytes = [&](int module) {
    std::int64_t bytes = 0;
    for (const int source : network.crossing(module))
      bytes += sample_bytes(network.shape(source), false, 1);
    return bytes;
  };
  const TensorSets sets = tensor_sets(schedule);
  std::vector<PredictedStage> all;
  std::vector<stages::Stage> built = build_stages(options, schedule);
  for (int i = 0; i < options.stages; ++i) {
    stages::Stage& stage = built[std::size_t(i)];
    const stages::StageRange range = stage.range();
    const std::int64_t weights = stage.weight_bytes();
    auto& [memory, operations] = all.emplace_back();
    memory = {.weights = weights,
              .stashes = weights * (schedule.versions_of(i) - 1),
              .optimizer = stage.optimizer_bytes(),
              .gradients = stage.gradient_bytes()};
    if (!range.first)
      memory.cuts += sets.gradients[std::size_t(i - 1)] * crossing_bytes(range.begin);
    if (!range.last) memory.cuts += sets.activations[std::size_t(i)] * crossing_bytes(range.end);
    if (range.first) memory.samples += sample_bytes(options.sample, options.input_as_bytes, slots);
    if (range.last) {
      memory.samples += sample_bytes(network.output(), false, slots);
      if (!options.target_is_input)
        memory.samples += sample_bytes(network.output(), options.target_as_bytes, slots);
    }
    // Programs leave tensors with their channels last.
    const StageSample sample = sample_for(options, stage, records && !range.first);
    stages::Activations kept;
    const auto retained = [&](const auto& work) {
      return capture::retained_bytes([&] { records ? program::run_dry(work) : work(); });
    };
    std::int64_t inner = retained([&] { kept = stage.forward(sample.inputs, sample.target, 0); });
    if (records && !range.last)  // the output is at the cut
      inner -= capture::bytes_alone(sample.inputs, kept.outputs);
    memory.activations = sets.stored[std::size_t(i)] * retained([&] { stage.store(kept); });
    if (stage.options().recompute) {
      stages::Activations recomputed = kept;
      const std::int64_t more = retained([&] { stage.recompute(recomputed); });
      inner = stage.supervised() ? std::max(inner, more) : inner + more;  // supervised: by turns
      kept = std::move(recomputed);
    }
    memory.activations += sets.inner[std::size_t(i)] * inner;
    if (stage.options().split) {  // what waits for the weights' gradient
      stages::Tensors gradients, made;
      for (std::size_t k = 0; !range.last && k < kept.outputs.size(); ++k)
        gradients.push_back(at::zeros_like(kept.outputs[k]));
      std::int64_t more = retained([&] { made = stage.backward_input(kept, gradients); });
      for (const at::Tensor& one : made) more -= std::int64_t(one.nbytes());
      memory.activations += sets.inner[std::size_t(i)] * more;
    }
    kept = {};
    program::Arena arena;
    run_step(stage, sample, schedule.samples_an_update(i), [&](const auto& body) {
      const auto program = program::record_call(stage, body, arena, {.numerics = options.numerics});
      for (const capture::OperationInfo& info : program->operations()) operations.push_back(info);
    });
    memory.scratch = arena.bytes();
  }
  return all;
}

std::vector<capture::OperationInfo> operations_of(const std::vector<PredictedStage>& stages) {
  std::vector<capture::OperationInfo> all;
  for (const PredictedStage& stage : stages)
    all.insert(all.end(), stage.operations.begin(), stage.operations.end());
  return all;
}

double sgemm_flops() {
  constexpr std::int64_t kSide = 512;
  at::set_num_threads(1);
  const at::Tensor a = at::rand({kSide, kSide}), b = at::rand({kSide, kSide});
  at::Tensor c = at::mm(a, b);
  double best = 0;
  for (int repeat = 0; repeat < 25; ++repeat) {
    const double ms = ms_of([&] { at::mm_out(c, a, b); });
    best = std::max(best, 2e3 * kSide * kSide * kSide / ms);
  }
  return best;
}

std::vector<double> cuttable(const TrainerOptions& options, std::vector<double> costs) {
  if (!has_heads(options)) return costs;
  int kept = options.network->size();
  for (int layers = 0; kept > options.stages; --kept) {
    if (!options.network->module(kept - 1).parameters().empty() && ++layers == 2) break;
  }
  if (!options.cut.empty() && options.cut.back() >= kept) return costs;
  for (; int(costs.size()) > kept; costs.pop_back()) costs[kept - 1] += costs.back();
  return costs;
}

std::vector<double> module_times_by_programs(TrainerOptions options, int threads) {
  options.correction = {};
  options.correction.kind = "none";
  options.recompute = false;
  return times_alone(std::move(options), threads);
}

bool balance_threads(TrainerOptions& options, std::map<int, std::vector<double>> costs) {
  const std::vector<std::vector<int>> choices = thread_choices(options);
  const bool open = std::any_of(choices.begin(), choices.end(),
                                [](const auto& counts) { return counts.size() > 1; });
  const bool balances = options.cut.empty() && options.stages > 1;
  std::replace(options.threads.begin(), options.threads.end(), 0, 1);
  const bool with_heads = has_heads(options) && runs_programs(options, 0);
  if (!open && (!balances || (equal_threads(options) && !with_heads))) return false;
  int named = 0;
  for (const std::vector<int>& counts : choices) {
    named += counts.front();
    for (const int count : counts) {
      if (costs.count(count) == 0)
        costs[count] = cuttable(options, module_times_by_programs(options, count));
    }
  }
  const HeadCosts heads = balances && with_heads ? head_costs(options, costs) : HeadCosts{};
  Balance found = balanced(costs, choices, std::max(usable_cores(), named), options.cut, heads);
  options.cut = std::move(found.cut);
  options.threads = std::move(found.threads);
  place_again(options);
  return true;
}

}  // namespace millrace::engine
