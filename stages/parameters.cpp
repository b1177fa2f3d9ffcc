#include "stages/parameters.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <unordered_map>

namespace millrace::stages {
namespace {

constexpr std::int64_t kAlign = 16;  // floats: one cache line, one AVX-512 register

void init_parameter(at::Tensor& tensor, const ParameterSpec& spec, const at::Generator& generator) {
  if (spec.init == Init::ones || spec.init == Init::zeros) {
    tensor.fill_(spec.init == Init::ones ? 1 : 0);
    return;
  }
  // In double, as in torch.nn.init, so that the bounds agree to the last bit.
  const double root = std::sqrt(double(spec.fan_in)), a = std::sqrt(5.0);
  const double gain = std::sqrt(spec.init == Init::he_uniform ? 2.0 : 2.0 / (1 + a * a));
  const double bound =
      spec.init == Init::fan_in_uniform ? 1 / root : std::sqrt(3.0) * (gain / root);
  tensor.uniform_(-bound, bound, generator);
}

std::string shape_text(at::IntArrayRef shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? "," : "") + std::to_string(shape[i]);
  return text + "]";
}

/// Whether it is a constant of a file's module, which has no name among its weights: no module can
/// give this one.
bool is_constant(const ParameterSpec& spec) {
  return spec.name.starts_with(".constant.");
}

}  // namespace

Parameters::Parameters(std::vector<ParameterSpec> specs, const at::TensorOptions& options,
                       const Parameters* fixed)
    : specs_(std::move(specs)) {
  std::int64_t end = 0;
  for (const ParameterSpec& spec : specs_) {
    offsets_.push_back(end);
    if (!spec.fixed) end += (c10::multiply_integers(spec.shape) + kAlign - 1) / kAlign * kAlign;
  }
  flat_ = at::zeros({end}, options.dtype(at::kFloat));
  // variable_data: a separate leaf on the same storage, whose version counter updates of the flat
  // buffer do not touch. The schedule decides which weights a backward sees.
  for (const at::Tensor& view : views_of(flat_)) {
    if (view.defined()) {
      views_.push_back(view.variable_data().set_requires_grad(true));
    } else {
      const std::size_t i = views_.size();
      views_.push_back(fixed ? fixed->views_[i]
                             : at::zeros(specs_[i].shape, options.dtype(at::kFloat)));
    }
  }
}

std::vector<at::Tensor> Parameters::views_of(const at::Tensor& flat) const {
  std::vector<at::Tensor> views;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    views.push_back(specs_[i].fixed
                        ? at::Tensor()
                        : flat.narrow(0, offsets_[i], c10::multiply_integers(specs_[i].shape))
                              .view(specs_[i].shape));
  }
  return views;
}

std::vector<std::int64_t> Parameters::places() const {
  std::vector<std::int64_t> all;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (!specs_[i].fixed)
      all.insert(all.end(), {offsets_[i], c10::multiply_integers(specs_[i].shape)});
  }
  return all;
}

std::int64_t Parameters::count() const {
  const std::vector<std::int64_t> all = places();
  std::int64_t count = 0;
  for (std::size_t i = 1; i < all.size(); i += 2) count += all[i];
  return count;
}

StateDict Parameters::state() const {
  const c10::NoGradGuard no_grad;
  StateDict state;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (is_constant(specs_[i])) continue;
    state.emplace_back(specs_[i].name,
                       views_[i].detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true));
  }
  return state;
}

StateDict initial_state(const Network& network, std::uint64_t seed) {
  const c10::NoGradGuard no_grad;
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  StateDict state;
  for (const ParameterSpec& spec : network.parameters(0, network.size())) {
    at::Tensor tensor = spec.given.defined() ? spec.given : at::empty(spec.shape, at::kFloat);
    if (!spec.given.defined()) init_parameter(tensor, spec, generator);
    state.emplace_back(spec.name, std::move(tensor));
  }
  return state;
}

void load_state(Parameters& parameters, const StateDict& state) {
  const c10::NoGradGuard no_grad;
  std::unordered_map<std::string, const at::Tensor*> by_name;
  for (const auto& [name, tensor] : state) by_name[name] = &tensor;
  for (std::size_t i = 0; i < parameters.specs().size(); ++i) {
    const ParameterSpec& spec = parameters.specs()[i];
    at::Tensor view = parameters.views()[i].detach();
    if (is_constant(spec)) {
      view.copy_(spec.given);
      continue;
    }
    auto found = by_name.find(spec.name);
    for (const std::string& other : spec.also)
      if (found == by_name.end()) found = by_name.find(other);
    if (found == by_name.end()) throw std::invalid_argument("holds no \"" + spec.name + "\"");
    if (found->second->sizes() != at::IntArrayRef(spec.shape)) {
      throw std::invalid_argument("\"" + spec.name + "\" has shape " +
                                  shape_text(found->second->sizes()) + ", the network needs " +
                                  shape_text(spec.shape));
    }
    view.copy_(*found->second);
  }
}

void add_other_names(StateDict& state, const Network& network) {
  for (const ParameterSpec& spec : network.parameters(0, network.size())) {
    for (const std::string& other : spec.also) {
      const at::Tensor same =
          std::ranges::find(state, spec.name, &StateDict::value_type::first)->second;
      state.emplace_back(other, same);
    }
  }
}

}  // namespace millrace::stages
