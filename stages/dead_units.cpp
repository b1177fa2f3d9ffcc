#include "stages/dead_units.h"

namespace millrace::stages {

DeadUnits::DeadUnits(const Stage& stage) {
  const Network& network = stage.network();
  std::size_t parameter = 0, units = 0;
  for (int index = stage.range().begin; index < stage.range().end; ++index) {
    const bool silenced =
        index + 1 < network.size() && network.module(index + 1).describe() == "relu";
    for (const ParameterSpec& spec : network.module(index).parameters()) {
      if (silenced && spec.name == "bias" && !stage.parameters().specs()[parameter].fixed) {
        biases_.push_back(parameter);
        units += std::size_t(spec.shape.front());
      }
      ++parameter;
    }
  }
  silent_.resize(units, 0);
}

void DeadUnits::look(const Tensors& gradients) {
  if (++updates_ % kEvery != 0) return;
  auto silent = silent_.begin();
  int dead = 0;
  for (const std::size_t bias : biases_) {
    const at::Tensor& gradient = gradients[bias];
    const float* const values = gradient.const_data_ptr<float>();
    for (std::int64_t channel = 0; channel < gradient.numel(); ++channel, ++silent) {
      if (values[channel] != 0) {
        *silent = 0;
      } else if (*silent < kLooks) {
        ++*silent;
      }
      dead += *silent == kLooks;
    }
  }
  dead_.store(dead, std::memory_order_relaxed);
}

}  // namespace millrace::stages
