#include "stages/auxiliary_head.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <stdexcept>

namespace millrace::stages {

AuxiliaryHead::AuxiliaryHead(std::int64_t channels, std::int64_t target, int kernel,
                             const Loss& loss, const OptimizerSpec& optimizer,
                             std::optional<std::uint64_t> seed, const at::TensorOptions& tensors)
    : padding_(kernel / 2), loss_(loss) {
  const c10::NoGradGuard no_grad;
  const std::int64_t weights = target * channels * kernel * kernel;
  // nn.Conv2d's rule: weights and bias from U(-b, b), b = 1 / sqrt(fan_in).
  const double bound = 1.0 / std::sqrt(double(channels * kernel * kernel));
  flat_ = at::zeros({weights + target}, at::kFloat);
  if (seed) flat_.uniform_(-bound, bound, at::detail::createCPUGenerator(*seed));
  flat_ = flat_.to(tensors.dtype(at::kFloat));
  gradient_ = at::zeros_like(flat_);
  const auto views = [&](const at::Tensor& flat) -> std::vector<at::Tensor> {
    return {flat.narrow(0, 0, weights).view({target, channels, kernel, kernel}),
            flat.narrow(0, weights, target)};
  };
  gradient_views_ = views(gradient_);
  for (const at::Tensor& view : views(flat_))
    parameters_.push_back(view.variable_data().set_requires_grad(true));
  optimizer_.emplace(optimizer, flat_, std::vector{std::int64_t(0), weights, weights, target});
}

at::Tensor AuxiliaryHead::loss(const at::Tensor& activations, const at::Tensor& target,
                               const at::Tensor& base) const {
  at::Tensor maps = at::conv2d(activations, parameters_[0], parameters_[1], 1, padding_);
  const bool vector = target.size(2) == 1 && target.size(3) == 1;
  if (vector) maps = maps.mean({2, 3}, /*keepdim=*/true);
  if (maps.sizes() != target.sizes()) {
    throw std::invalid_argument(
        "correction \"local\" needs stages whose maps have the target's size");
  }
  if (base.defined()) return loss_.of(maps + base, target);
  return loss_.of(loss_.scores() ? maps : at::sigmoid(maps), target);
}

void AuxiliaryHead::update(int count, const at::Tensor& rate, at::Tensor& skipped,
                           const at::Tensor& finite) {
  optimizer_->update(flat_, flat_, gradient_, count, rate, skipped, finite);
}

NamedTensors AuxiliaryHead::state() const {
  NamedTensors all = optimizer_->state();
  all.emplace_back("weights", flat_);
  return all;
}

std::int64_t AuxiliaryHead::bytes() const {
  return std::int64_t(flat_.nbytes() + gradient_.nbytes()) + optimizer_->bytes();
}

}  // namespace millrace::stages
