// Weights that are others for a while.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

namespace millrace::stages {

/// Adds `shift` (undefined: nothing) to `weights` while it lives.
class Shifted {
 public:
  Shifted(const at::Tensor& weights, const at::Tensor& shift) : weights_(weights) {
    if (!shift.defined()) return;
    const c10::NoGradGuard no_grad;
    kept_ = weights.clone();
    weights_.add_(shift);
  }
  ~Shifted() {
    if (!kept_.defined()) return;
    const c10::NoGradGuard no_grad;
    weights_.copy_(kept_);
  }
  Shifted(const Shifted&) = delete;
  Shifted& operator=(const Shifted&) = delete;

 private:
  at::Tensor weights_, kept_;
};

}  // namespace millrace::stages
