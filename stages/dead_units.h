#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "stages/stage.h"

namespace millrace::stages {

/// Counts a stage's dead units, channels that a ReLU blocks forward and back: those whose bias is
/// right before a ReLU and has had a gradient of exactly 0 at kLooks looks, kEvery updates apart.
/// Delay drives channels there, and none recovers. look(): one thread; the counts: any.
class DeadUnits {
 public:
  static constexpr int kEvery = 16, kLooks = 8;

  explicit DeadUnits(const Stage& stage);
  /// After an update. `gradients`: as Stage::gradients(), on the CPU.
  void look(const Tensors& gradients);
  int dead() const { return dead_.load(std::memory_order_relaxed); }
  int units() const { return int(silent_.size()); }  ///< that a ReLU follows

 private:
  std::vector<std::size_t> biases_;   ///< indices of parameters
  std::vector<std::uint8_t> silent_;  ///< by channel: looks without a gradient
  int updates_ = 0;
  std::atomic<int> dead_{0};
};

inline DeadUnits::DeadUnits(const Stage& stage) {
  const Network& network = stage.network();
  std::size_t parameter = 0, units = 0;
  for (int index = stage.range().begin; index < stage.range().end; ++index) {
    const bool silenced =
        index + 1 < network.size() && network.module(index + 1).describe() == "relu";
    for (const ParameterSpec& spec : network.module(index).parameters()) {
      // Frozen parameters have no gradient to judge by.
      if (silenced && spec.name == "bias" && !stage.parameters().specs()[parameter].fixed) {
        biases_.push_back(parameter);
        units += std::size_t(spec.shape.front());
      }
      ++parameter;
    }
  }
  silent_.resize(units, 0);
}

inline void DeadUnits::look(const Tensors& gradients) {
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
