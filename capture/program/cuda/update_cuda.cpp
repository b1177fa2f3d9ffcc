#include <algorithm>

#include "capture/program/cuda/launch_cuda.h"
#include "capture/program/cuda/plans.h"
#include "capture/program/cuda/update_arguments.h"
#include "stages/guarded_update.h"

namespace millrace::program {

// millrace::check_and_update
std::unique_ptr<Prepared> gpu_update(const Node& node) {
  const auto& arguments = node.call->arguments;
  const stages::UpdateNumbers n = stages::numbers_in(arguments[5].toStringRef());
  const auto states = std::ptrdiff_t(arguments[3].toTensorVector().size());
  const int count = int(node.reads[0].numel());
  const int blocks = std::clamp(count / (4 * gpu::kThreads), 1, gpu::kMostUpdateBlocks);
  static constexpr const char* rules[] = {"none", "discrepancy", "weight_prediction", "gap_aware",
                                          "dc_asgd"};
  const stages::CorrectionRule rule = n.correction.rule;
  const auto kernel = [&](const std::string& expression, int on) {
    return Kernel{expression, gpu::kThreads, on, 2 * gpu::kThreads + gpu::kFormulaFloats};
  };
  std::vector<Kernel> kernels = {
      kernel("look_at_gradient", node.reads[3].defined() ? 1 : blocks),
      kernel("update<" + numbers(n.optimizer) +
                 ", millrace::stages::CorrectionRule::" + rules[int(rule)] + ">",
             blocks)};
  if (rule == stages::CorrectionRule::gap_aware) kernels.push_back(kernel("measure_step", 1));
  const auto bind = [=](const Node& of, char* scratch) {
    const auto state = of.writes.begin() + 3, memory = state + states;
    return gpu::UpdateArguments{
        .numbers = n,
        .from = floats(of.reads[0]),
        .gradient = floats(of.reads[1]),
        .to = floats(of.writes[2]),
        .state = stages::state_of(n, {state, memory}),
        .memory = stages::memory_of(rule, {memory, of.writes.end()}),
        .rate = static_cast<const double*>(of.reads[2].const_data_ptr()),
        .given = of.reads[3].defined() ? static_cast<const bool*>(of.reads[3].const_data_ptr())
                                       : nullptr,
        .finite = static_cast<bool*>(of.writes[0].data_ptr()),
        .skipped = floats(of.writes[1]),
        .notes = reinterpret_cast<gpu::UpdateNotes*>(scratch),
        .count = count,
        .blocks = blocks};
  };
  return std::make_unique<GpuCall<gpu::UpdateArguments>>(node, kernels, bind,
                                                         sizeof(gpu::UpdateNotes));
}

}  // namespace millrace::program
