#include <algorithm>

#include "capture/program/cuda/launch_cuda.h"

namespace millrace::program {

// millrace::check_and_update
std::unique_ptr<Prepared> gpu_update(const Node& node) {
  const stages::UpdateNumbers n = numbers_of_update(node);
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
    gpu::UpdateArguments u{.numbers = n,
                           .notes = reinterpret_cast<gpu::UpdateNotes*>(scratch),
                           .count = count,
                           .blocks = blocks};
    bind_update(of, u);
    return u;
  };
  return std::make_unique<GpuCall<gpu::UpdateArguments>>(node, kernels, bind,
                                                         sizeof(gpu::UpdateNotes));
}

}  // namespace millrace::program
