#include "stages/stage.h"

#include <ATen/ATen.h>                       // operators
#include <c10/core/GradMode.h>               // AutoGradMode, NoGradGuard
#include <torch/csrc/autograd/autograd.h>    // torch::autograd::grad

#include <unordered_map>  // entries by name

namespace millrace::stages {

Stage::Stage(std::shared_ptr<const Network> network, StageRange range, const OptimizerSpec& optimizer,
             const at::TensorOptions& options)
    : network_(std::move(network)),
      range_(range),
      parameters_(network_->parameters(range.begin, range.end), options),
      optimizer_(make_optimizer(optimizer, parameters_.flat())),
      gradient_(at::zeros_like(parameters_.flat())),
      gradient_views_(parameters_.views_of(gradient_)) {
  for (int index = range.begin; index < range.end; ++index) {
    parameter_counts_.push_back(network_->module(index).parameters().size());
  }
}

Activations Stage::forward(const at::Tensor& input) const {
  const c10::AutoGradMode with_grad(true);
  Activations kept;
  kept.input = input.detach();
  if (!range_.first) kept.input.set_requires_grad(true);
  at::Tensor x = kept.input;
  const std::span<const at::Tensor> parameters(parameters_.views());
  std::size_t used = 0;
  for (int index = range_.begin; index < range_.end; ++index) {
    const Layer& layer = network_->module(index);
    const std::size_t count = parameter_counts_[index - range_.begin];
    x = layer.forward(x, parameters.subspan(used, count));
    used += count;
  }
  kept.output = x;
  return kept;
}

Activations Stage::forward(const at::Tensor& input, const at::Tensor& target) const {
  Activations kept = forward(input);
  const c10::AutoGradMode with_grad(true);
  kept.loss = at::mse_loss(kept.output, target);
  return kept;
}

at::Tensor Stage::backward(Activations& activations, const at::Tensor& output_gradient) {
  std::vector<at::Tensor> wanted = parameters_.views();
  if (!range_.first) wanted.push_back(activations.input);
  if (wanted.empty()) return {};
  const bool last = activations.loss.defined();
  std::vector<at::Tensor> gradients = torch::autograd::grad(
      {last ? activations.loss : activations.output},
      wanted, {last ? at::Tensor() : output_gradient});
  activations = {};
  at::Tensor input_gradient;
  if (!range_.first) {
    input_gradient = std::move(gradients.back());
    gradients.pop_back();
  }
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (accumulated_ == 0) {
      gradient_views_[i].copy_(gradients[i]);
    } else {
      gradient_views_[i].add_(gradients[i]);
    }
  }
  ++accumulated_;
  return input_gradient;
}

void Stage::update() {
  const c10::NoGradGuard no_grad;
  if (accumulated_ > 1) gradient_.div_(accumulated_);
  accumulated_ = 0;
  if (!parameters_.specs().empty()) optimizer_->step(parameters_.flat(), gradient_);
}

namespace {

std::string entry_name(const std::string& buffer, const ParameterSpec& parameter) {
  return "optimizer." + buffer + "." + parameter.name;
}

}  // namespace

StateDict Stage::checkpoint() const {
  StateDict all = parameters_.state();
  for (const auto& [name, buffer] : optimizer_->state()) {
    const bool one_number = buffer.numel() == 1;
    const std::vector<at::Tensor> views = one_number ? std::vector<at::Tensor>{} : parameters_.views_of(buffer);
    for (std::size_t i = 0; i < parameters_.specs().size(); ++i) {
      const at::Tensor& value = one_number ? buffer : views[i];
      all.emplace_back(entry_name(name, parameters_.specs()[i]), value.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true));
    }
  }
  return all;
}

void Stage::restore(const StateDict& state) {
  load_state(parameters_, state);
  const c10::NoGradGuard no_grad;
  std::unordered_map<std::string, at::Tensor> by_name(state.begin(), state.end());
  for (const auto& [name, buffer] : optimizer_->state()) {
    const bool one_number = buffer.numel() == 1;
    const std::vector<at::Tensor> views = one_number ? std::vector<at::Tensor>{} : parameters_.views_of(buffer);
    for (std::size_t i = 0; i < parameters_.specs().size(); ++i) {
      const auto found = by_name.find(entry_name(name, parameters_.specs()[i]));
      at::Tensor into = one_number ? buffer : views[i];
      if (found != by_name.end() && found->second.sizes() == into.sizes()) into.copy_(found->second);
    }
  }
}

}  // namespace millrace::stages
