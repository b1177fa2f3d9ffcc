#include "stages/optimizer.h"

#include <ATen/ATen.h>

#include <stdexcept>

namespace millrace::stages {

const at::Tensor& find(const NamedTensors& tensors, const std::string& name) {
  for (const auto& [key, tensor] : tensors) {
    if (key == name) return tensor;
  }
  throw std::logic_error("no optimizer state \"" + name + "\"");
}

const OptimizerKind& optimizer_kind(const std::string& name) {
  for (const OptimizerKind& kind : optimizers()) {
    if (kind.name == name) return kind;
  }
  throw std::invalid_argument("optimizer.kind: unknown \"" + name + "\"");
}

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const OptimizerKind& kind : optimizers()) list.push_back(kind.name);
    return list;
  }();
  return names;
}

Optimizer::Optimizer(const OptimizerSpec& spec, const at::Tensor& weights) : spec_(spec) {
  for (const std::string& name : optimizer_kind(spec.kind).state(spec)) {
    state_.emplace_back(
        name, name == "steps" ? at::zeros({1}, weights.options()) : at::zeros_like(weights));
  }
}

void Optimizer::step(at::Tensor& weights, at::Tensor& gradient) {
  const OptimizerKind& kind = optimizer_kind(spec_.kind);
  const double lr = spec_.lr * rate_;
  if (spec_.weight_decay != 0) {
    if (kind.decoupled) {
      weights.mul_(1 - lr * spec_.weight_decay);
    } else {
      gradient.add_(weights, spec_.weight_decay);
    }
  }
  kind.step(spec_, lr, weights, gradient, state_, scratch_);
}

}  // namespace millrace::stages
