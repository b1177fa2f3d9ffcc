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
  /// Call after an update. `gradients`: Stage::gradients(), on the CPU.
  void look(const Tensors& gradients);
  int dead() const { return dead_.load(std::memory_order_relaxed); }
  int units() const { return int(silent_.size()); }  ///< followed by a ReLU

 private:
  std::vector<std::size_t> biases_;   ///< indices of parameters
  std::vector<std::uint8_t> silent_;  ///< [channel]: looks without a gradient
  int updates_ = 0;
  std::atomic<int> dead_{0};
};

}  // namespace millrace::stages
