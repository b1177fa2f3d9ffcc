#include "stages/stage.h"

#include <ATen/ATen.h>                     // operators
#include <c10/core/GradMode.h>             // AutoGradMode, NoGradGuard
#include <torch/csrc/autograd/autograd.h>  // torch::autograd::grad

#include <stdexcept>      // std::logic_error
#include <unordered_map>  // entries by name

namespace millrace::stages {

namespace {

std::vector<Parameters> buffers(const Network& network, StageRange range,
                                const at::TensorOptions& options, int versions) {
  std::vector<Parameters> all;
  for (int i = 0; i < versions; ++i)
    all.emplace_back(network.parameters(range.begin, range.end), options);
  return all;
}

}  // namespace

Stage::Stage(std::shared_ptr<const Network> network, StageRange range,
             const OptimizerSpec& optimizer, const at::TensorOptions& options, int versions)
    : network_(std::move(network)),
      range_(range),
      versions_(buffers(*network_, range, options, versions)),
      optimizer_(make_optimizer(optimizer, parameters().flat())),
      gradient_(at::zeros_like(parameters().flat())),
      gradient_views_(parameters().views_of(gradient_)) {
  for (int index = range.begin; index < range.end; ++index) {
    parameter_counts_.push_back(network_->module(index).parameters().size());
  }
}

Activations Stage::forward(const at::Tensor& input, std::int64_t version) const {
  if (version == kNewest) version = newest_;
  if (version > newest_ || version + std::int64_t(versions_.size()) <= newest_) {
    throw std::logic_error("weight version " + std::to_string(version) + " is not kept");
  }
  const c10::AutoGradMode with_grad(true);
  Activations kept;
  kept.buffer = buffer_of(version);
  kept.input = input.detach();
  if (range_.first && network_->channels_last()) {
    kept.input = kept.input.contiguous(at::MemoryFormat::ChannelsLast);
  }
  if (!range_.first) kept.input.set_requires_grad(true);
  at::Tensor x = kept.input;
  const std::span<const at::Tensor> parameters(versions_[kept.buffer].views());
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

Activations Stage::forward(const at::Tensor& input, const at::Tensor& target,
                           std::int64_t version) const {
  Activations kept = forward(input, version);
  const c10::AutoGradMode with_grad(true);
  kept.loss = at::mse_loss(kept.output, target);
  return kept;
}

at::Tensor Stage::backward(Activations& activations, const at::Tensor& output_gradient) {
  std::vector<at::Tensor> wanted = versions_[activations.buffer].views();
  if (!range_.first) wanted.push_back(activations.input);
  if (wanted.empty()) return {};
  const bool last = activations.loss.defined();
  std::vector<at::Tensor> gradients =
      torch::autograd::grad({last ? activations.loss : activations.output}, wanted,
                            {last ? at::Tensor() : output_gradient});
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
  const at::Tensor& before = parameters().flat();
  ++newest_;
  if (versions_.size() > 1) parameters().flat().copy_(before);
  if (!parameters().specs().empty()) optimizer_->step(parameters().flat(), gradient_);
}

namespace {

std::string entry_name(const std::string& buffer, const ParameterSpec& parameter) {
  return "optimizer." + buffer + "." + parameter.name;
}

}  // namespace

StateDict Stage::checkpoint() const {
  StateDict all = parameters().state();
  for (const auto& [name, buffer] : optimizer_->state()) {
    const bool one_number = buffer.numel() == 1;
    const std::vector<at::Tensor> views =
        one_number ? std::vector<at::Tensor>{} : parameters().views_of(buffer);
    for (std::size_t i = 0; i < parameters().specs().size(); ++i) {
      const at::Tensor& value = one_number ? buffer : views[i];
      all.emplace_back(entry_name(name, parameters().specs()[i]),
                       value.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true));
    }
  }
  return all;
}

void Stage::restore(const StateDict& state) {
  load_state(parameters(), state);
  const c10::NoGradGuard no_grad;
  std::unordered_map<std::string, at::Tensor> by_name(state.begin(), state.end());
  for (const auto& [name, buffer] : optimizer_->state()) {
    const bool one_number = buffer.numel() == 1;
    const std::vector<at::Tensor> views =
        one_number ? std::vector<at::Tensor>{} : parameters().views_of(buffer);
    for (std::size_t i = 0; i < parameters().specs().size(); ++i) {
      const auto found = by_name.find(entry_name(name, parameters().specs()[i]));
      at::Tensor into = one_number ? buffer : views[i];
      if (found != by_name.end() && found->second.sizes() == into.sizes())
        into.copy_(found->second);
    }
  }
}

}  // namespace millrace::stages
