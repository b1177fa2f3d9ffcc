#include "engine/trainer/stage_memory.h"

#include <ATen/ATen.h>

#include "capture/program/stage_programs.h"
#include "capture/retained_bytes.h"
#include "engine/schedule/verifier.h"
#include "engine/trainer/operations.h"

namespace millrace::engine {
namespace {

/// [1,C,H,W] of each sample in flight, in the form in which samples wait for stages.
std::int64_t sample_bytes(const stages::ImageShape& shape, bool as_bytes, int slots) {
  return slots * std::int64_t(shape.channels) * shape.height * shape.width * (as_bytes ? 1 : 4);
}

}  // namespace

std::vector<int> even_cut(int modules, int stages) {
  std::vector<int> cut;
  for (int stage = 1; stage < stages; ++stage) cut.push_back(stage * modules / stages);
  return cut;
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
  const auto zeros = [&](int source) { return at::zeros(network.shape(source).sizes()); };
  const auto crossing_bytes = [&](int module) {
    std::int64_t bytes = 0;
    for (const int source : network.crossing(module)) bytes += std::int64_t(zeros(source).nbytes());
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
    stages::Tensors inputs;
    for (const int source : network.crossing(range.begin)) {
      // The layout in which programs leave them.
      const bool last = records && !range.first;
      inputs.push_back(last ? zeros(source).contiguous(at::MemoryFormat::ChannelsLast)
                            : zeros(source));
    }
    at::Tensor target;
    if (stage.takes_target())
      target =
          options.target_is_input && range.first ? inputs[0] : at::zeros(network.output().sizes());
    stages::Activations kept;
    memory.activations = sets.inner[std::size_t(i)] * capture::retained_bytes([&] {
                           kept = stage.forward(inputs, target, 0);
                           if (stage.options().recompute) stage.recompute(kept);
                         });
    memory.activations +=
        sets.stored[std::size_t(i)] * capture::retained_bytes([&] { stage.store(kept); });
    if (stage.options().split) {  // what waits for the weights' gradient
      stages::Tensors gradients, made;
      for (std::size_t k = 0; !range.last && k < kept.outputs.size(); ++k)
        gradients.push_back(at::zeros_like(kept.outputs[k]));
      std::int64_t more =
          capture::retained_bytes([&] { made = stage.backward_input(kept, gradients); });
      for (const at::Tensor& one : made) more -= std::int64_t(one.nbytes());
      memory.activations += sets.inner[std::size_t(i)] * more;
    }
    kept = {};
    program::Arena arena;
    run_step(stage, inputs, target, schedule.samples_an_update(i), [&](const auto& body) {
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

}  // namespace millrace::engine
