#include "stages/stage.h"

#include <ATen/ATen.h>                     // operators
#include <c10/core/GradMode.h>             // AutoGradMode, NoGradGuard
#include <torch/csrc/autograd/autograd.h>  // torch::autograd::grad

#include <algorithm>      // find
#include <set>            // what a piece uses
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

/// Adds `more` to what a module's output has from its other users, if there is any.
void add(at::Tensor& gradient, const at::Tensor& more) {
  gradient = gradient.defined() ? gradient + more : more;
}

}  // namespace

Stage::Stage(std::shared_ptr<const Network> network, StageRange range,
             const OptimizerSpec& optimizer, const at::TensorOptions& tensors, StageOptions options)
    : network_(std::move(network)),
      range_(range),
      options_(options),
      before_(network_->crossing(range.begin)),
      after_(network_->crossing(range.end)),
      versions_(buffers(*network_, range, tensors, options.versions)),
      optimizer_(make_optimizer(optimizer, parameters().flat())),
      gradients_{at::zeros_like(parameters().flat())},
      gradient_views_{parameters().views_of(gradients_[0])} {
  for (int index = range.begin; index < range.end; ++index)
    parameter_counts_.push_back(network_->module(index).parameters().size());
  parts_ = make_parts();
}

void Stage::replicate(std::vector<const Stage*> stages) {
  replicas_ = std::move(stages);
  gradients_.push_back(at::zeros_like(gradients_[0]));
  gradient_views_.push_back(parameters().views_of(gradients_[1]));
  mean_ = at::zeros_like(gradients_[0]);
}

std::vector<Stage::Part> Stage::make_parts() const {
  std::vector<Part> parts;
  std::size_t used = 0;
  const int length = options_.split ? 1 : range_.end - range_.begin;
  for (int begin = range_.begin; begin < range_.end; begin += length) {
    Part part{.begin = begin, .end = begin + length, .first_parameter = used};
    std::set<int> uses = {begin - 1};
    for (int index = begin; index < part.end; ++index) {
      part.parameters += parameter_counts_[index - range_.begin];
      if (network_->from(index) != kNone && network_->from(index) < begin)
        uses.insert(network_->from(index));
    }
    part.uses.assign(uses.begin(), uses.end());
    for (const int source : network_->crossing(part.end)) {
      if (source >= begin) part.gives.push_back(source);
    }
    used += part.parameters;
    parts.push_back(std::move(part));
  }
  return parts;
}

Activations Stage::forward(const Tensors& inputs, const at::Tensor& target,
                           std::int64_t version) const {
  if (version == kNewest) version = newest_;
  if (version > newest_ || version + options_.versions <= newest_)
    throw std::logic_error("weight version " + std::to_string(version) + " is not kept");
  Activations kept;
  kept.buffer = buffer_of(version);
  kept.target = target;
  for (const at::Tensor& input : inputs) kept.inputs.push_back(input.detach());
  if (range_.first && network_->channels_last())
    kept.inputs[0] = kept.inputs[0].contiguous(at::MemoryFormat::ChannelsLast);
  run(kept, !options_.recompute);
  return kept;
}

void Stage::recompute(Activations& activations) const {
  run(activations, true);
}

void Stage::run(Activations& a, bool keep) const {
  const c10::AutoGradMode with_grad(keep);
  const Tensors& weights = versions_[a.buffer].views();
  Tensors values(std::size_t(network_->size()) + 1);  // by module + 1, no graph
  for (std::size_t i = 0; i < before_.size(); ++i) values[before_[i] + 1] = a.inputs[i];
  a.pieces.clear();
  for (const Part& part : parts_) {
    Piece piece;
    Tensors inside(std::size_t(part.end - part.begin) + 1);  // what its modules give, with graph
    const auto value = [&](int source) -> at::Tensor& {
      return source >= part.begin ? inside[source - part.begin] : values[source + 1];
    };
    for (const int source : part.uses) {
      // A leaf: gradients stop here and are handed on. Nobody wants the sample's own.
      at::Tensor leaf = values[source + 1].detach();
      leaf.set_requires_grad(keep && !(range_.first && source == kSample));
      values[source + 1] = leaf;
      piece.inputs.push_back(leaf);
    }
    std::size_t used = part.first_parameter;
    for (int index = part.begin; index < part.end; ++index) {
      const std::size_t count = parameter_counts_[index - range_.begin];
      const int from = network_->from(index);
      const at::Tensor x[] = {value(index - 1), from == kNone ? at::Tensor() : value(from)};
      inside[index - part.begin] =
          network_->module(index).forward(x, std::span(weights).subspan(used, count));
      used += count;
    }
    for (const int source : part.gives) {
      piece.outputs.push_back(value(source));
      values[source + 1] = value(source).detach();
    }
    if (range_.last && part.end == range_.end) {
      piece.outputs = {at::mse_loss(piece.outputs[0], a.target)};
      a.loss = piece.outputs[0].detach();
    }
    if (keep) a.pieces.push_back(std::move(piece));
  }
  a.outputs.clear();
  for (const int source : after_) a.outputs.push_back(values[source + 1]);
}

Stage::Gradients Stage::start(const Activations& activations,
                              const Tensors& output_gradients) const {
  if (activations.pieces.empty()) throw std::logic_error("backward without activations");
  Gradients gradients(std::size_t(network_->size()) + 1);
  for (std::size_t i = 0; !range_.last && i < after_.size(); ++i)
    gradients[after_[i] + 1] = output_gradients[i];
  return gradients;
}

Tensors Stage::backward_piece(const Part& part, Piece& piece, Gradients& gradients, int buffer,
                              bool with_parameters) {
  const bool loss = range_.last && part.end == range_.end;
  Tensors roots, root_gradients, wanted;
  for (std::size_t i = 0; i < piece.outputs.size(); ++i) {
    if (!piece.outputs[i].requires_grad()) continue;
    roots.push_back(piece.outputs[i]);
    root_gradients.push_back(loss ? at::Tensor() : gradients[part.gives[i] + 1]);
  }
  if (roots.empty()) return {};
  if (with_parameters) {
    const auto begin = versions_[buffer].views().begin() + std::ptrdiff_t(part.first_parameter);
    wanted.assign(begin, begin + std::ptrdiff_t(part.parameters));
  }
  for (const at::Tensor& input : piece.inputs) {
    if (input.requires_grad()) wanted.push_back(input);
  }
  if (!with_parameters && part.parameters > 0) piece.gradients = root_gradients;
  if (wanted.empty()) return {};
  const bool again = !with_parameters && part.parameters > 0;  // the weights' gradient comes later
  Tensors found = torch::autograd::grad(roots, wanted, root_gradients, again);
  std::size_t next = with_parameters ? part.parameters : 0;
  for (std::size_t i = 0; i < piece.inputs.size(); ++i) {
    if (piece.inputs[i].requires_grad()) add(gradients[part.uses[i] + 1], found[next++]);
  }
  found.resize(with_parameters ? part.parameters : 0);
  return found;
}

Tensors Stage::finish(Gradients& gradients) const {
  Tensors inputs;
  for (std::size_t i = 0; !range_.first && i < before_.size(); ++i)
    inputs.push_back(std::move(gradients[before_[i] + 1]));
  return inputs;
}

Tensors Stage::backward(Activations& activations, const Tensors& output_gradients) {
  Gradients gradients = start(activations, output_gradients);
  for (std::size_t i = parts_.size(); i-- > 0;) {
    const Tensors found = backward_piece(parts_[i], activations.pieces[i], gradients,
                                         activations.buffer, /*with_parameters=*/true);
    add_gradients(parts_[i].first_parameter, found);
  }
  ++accumulated_;
  activations = {};
  return finish(gradients);
}

Tensors Stage::backward_input(Activations& activations, const Tensors& output_gradients) {
  Gradients gradients = start(activations, output_gradients);
  for (std::size_t i = parts_.size(); i-- > 0;) {
    Piece& piece = activations.pieces[i];
    backward_piece(parts_[i], piece, gradients, activations.buffer, /*with_parameters=*/false);
    if (parts_[i].parameters == 0) piece = {};
  }
  return finish(gradients);
}

void Stage::backward_weight(Activations& activations) {
  for (std::size_t i = parts_.size(); i-- > 0;) {
    const Part& part = parts_[i];
    Piece& piece = activations.pieces[i];
    if (part.parameters == 0) continue;
    const auto begin =
        versions_[activations.buffer].views().begin() + std::ptrdiff_t(part.first_parameter);
    const Tensors weights(begin, begin + std::ptrdiff_t(part.parameters));
    add_gradients(part.first_parameter,
                  torch::autograd::grad(piece.outputs, weights, piece.gradients));
  }
  ++accumulated_;
  activations = {};
}

void Stage::add_gradients(std::size_t first, const Tensors& gradients) {
  const c10::NoGradGuard no_grad;
  const Tensors& views = gradient_views_[sum()];
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (accumulated_ == 0) {
      views[first + i].copy_(gradients[i]);
    } else {
      views[first + i].add_(gradients[i]);
    }
  }
}

void Stage::update() {
  const c10::NoGradGuard no_grad;
  at::Tensor* gradient = &gradients_[sum()];
  int count = accumulated_;
  if (!replicas_.empty()) {
    mean_.copy_(replicas_[0]->gradients_[sum()]);
    for (std::size_t i = 1; i < replicas_.size(); ++i) mean_.add_(replicas_[i]->gradients_[sum()]);
    count *= int(replicas_.size());
    gradient = &mean_;
  }
  if (count > 1) gradient->div_(count);
  accumulated_ = 0;
  const at::Tensor& before = parameters().flat();
  ++newest_;
  if (options_.versions > 1) parameters().flat().copy_(before);
  if (!parameters().specs().empty()) optimizer_->step(parameters().flat(), *gradient);
}

std::int64_t Stage::optimizer_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [name, buffer] : optimizer_->state()) bytes += std::int64_t(buffer.nbytes());
  return bytes;
}

std::int64_t Stage::gradient_bytes() const {
  std::int64_t bytes = mean_.defined() ? std::int64_t(mean_.nbytes()) : 0;
  for (const at::Tensor& sum : gradients_) bytes += std::int64_t(sum.nbytes());
  return bytes;
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
