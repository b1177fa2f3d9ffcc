#include "stages/guarded_update.h"

#include <ATen/ATen.h>                      // operators
#include <ATen/core/dispatch/Dispatcher.h>  // an operator of our own
#include <torch/library.h>                  // its registration

#include <cmath>      // spike compensation's factors
#include <stdexcept>  // std::logic_error

#include "stages/update_kernel.h"

namespace millrace::stages {
namespace {

/// Which state is which.
class State {
 public:
  explicit State(const UpdateBuffers& buffers, const at::Tensor& finite)
      : state_(buffers.state), finite_(finite) {}
  /// A copy, so that what is made of it can still be turned down.
  at::Tensor operator[](const std::string& name) const { return find(name).clone(); }
  void keep(const std::string& name, const at::Tensor& made) const {
    at::Tensor old = find(name);
    old.copy_(at::where(finite_, made, old));
  }

 private:
  const at::Tensor& find(const std::string& name) const {
    for (const auto& [key, buffer] : state_) {
      if (key == name) return buffer;
    }
    throw std::logic_error("no optimizer state \"" + name + "\"");
  }
  const std::vector<std::pair<std::string, at::Tensor>>& state_;
  const at::Tensor& finite_;
};

at::Tensor by_sgd(const OptimizerSpec& spec, const at::Tensor& weights, const at::Tensor& gradient,
                  const State& state, const at::Tensor& lr) {
  if (spec.momentum == 0) return weights - gradient * lr;
  const at::Tensor momentum = state["momentum"].mul_(spec.momentum).add_(gradient);
  state.keep("momentum", momentum);
  if (spec.spike_delay == 0) return weights - momentum * lr;
  const double a = std::pow(spec.momentum, double(spec.spike_delay));
  return weights - momentum * (lr * a) - gradient * (lr * ((1 - a) / (1 - spec.momentum)));
}

at::Tensor by_rmsprop(const OptimizerSpec& spec, const at::Tensor& weights,
                      const at::Tensor& gradient, const State& state, const at::Tensor& lr) {
  const at::Tensor square =
      state["square"].mul_(spec.alpha).addcmul_(gradient, gradient, 1 - spec.alpha);
  state.keep("square", square);
  const at::Tensor change = gradient / square.sqrt().add_(spec.eps);
  if (spec.momentum == 0) return weights - change * lr;
  const at::Tensor momentum = state["momentum"].mul_(spec.momentum).add_(change);
  state.keep("momentum", momentum);
  return weights - momentum * lr;
}

at::Tensor by_adam(const OptimizerSpec& spec, const at::Tensor& weights, const at::Tensor& gradient,
                   const State& state, const at::Tensor& lr) {
  const at::Tensor mean = state["mean"].lerp_(gradient, 1 - spec.beta1);
  const at::Tensor square =
      state["square"].mul_(spec.beta2).addcmul_(gradient, gradient, 1 - spec.beta2);
  const at::Tensor steps = state["steps"].add_(1);
  state.keep("mean", mean);
  state.keep("square", square);
  state.keep("steps", steps);
  const at::Tensor count = steps.to(at::kDouble).squeeze();
  const at::Tensor unbias1 = 1 - at::pow(spec.beta1, count),
                   unbias2 = 1 - at::pow(spec.beta2, count);
  const at::Tensor scale = square.sqrt().div_(unbias2.sqrt()).add_(spec.eps);
  const bool decoupled = spec.kind == "adamw" && spec.weight_decay != 0;
  const at::Tensor decayed = decoupled ? weights * (1 - lr * spec.weight_decay) : weights;
  return decayed - mean / scale * (lr / unbias1);
}

}  // namespace

void guarded_update(const OptimizerSpec& spec, UpdateBuffers buffers, int count,
                    const at::Tensor& rate, const at::Tensor& finite) {
  if (buffers.from.is_cuda() && update_kernel(spec, buffers, count, rate, finite)) return;
  at::Tensor& gradient = buffers.gradient;
  if (count > 1) gradient.div_(count);
  if (spec.weight_decay != 0 && spec.kind != "adamw")
    gradient.add_(buffers.from, spec.weight_decay);
  const State state(buffers, finite);
  const at::Tensor lr = rate * spec.lr;
  const auto rule = spec.kind == "sgd" ? by_sgd : spec.kind == "rmsprop" ? by_rmsprop : by_adam;
  const at::Tensor made = rule(spec, buffers.from, gradient, state, lr);
  buffers.to.copy_(at::where(finite, made, buffers.from));
}

namespace {

at::Tensor check_and_update_operator(const at::Tensor& from, const at::Tensor& to,
                                     const at::Tensor& gradient, std::vector<at::Tensor> state,
                                     std::vector<std::string> names, std::string kind,
                                     std::vector<double> numbers, std::int64_t count,
                                     const at::Tensor& rate, const at::Tensor& skipped) {
  const at::Tensor finite = at::isfinite(at::linalg_vector_norm(gradient, INFINITY));
  UpdateBuffers buffers{.from = from, .to = to, .gradient = gradient, .state = {}};
  for (std::size_t i = 0; i < state.size(); ++i) buffers.state.emplace_back(names[i], state[i]);
  guarded_update(spec_of(kind, numbers), std::move(buffers), int(count), rate, finite);
  at::Tensor(skipped).add_(finite.logical_not());
  return finite;
}

}  // namespace

TORCH_LIBRARY(millrace, library) {
  library.def(
      "check_and_update(Tensor weights, Tensor(a!) to, Tensor(b!) gradient, Tensor(c!)[] state, "
      "str[] names, str kind, float[] numbers, int count, Tensor rate, Tensor(d!) skipped) -> "
      "Tensor");
}

TORCH_LIBRARY_IMPL(millrace, CompositeExplicitAutograd, library) {
  library.impl("check_and_update", &check_and_update_operator);
}

at::Tensor check_and_update(const OptimizerSpec& spec, UpdateBuffers buffers, int count,
                            const at::Tensor& rate, at::Tensor& skipped) {
  static const auto called = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("millrace::check_and_update", "")
                                 .typed<decltype(check_and_update_operator)>();
  std::vector<at::Tensor> state;
  std::vector<std::string> names;
  for (auto& [name, buffer] : buffers.state) {
    names.push_back(name);
    state.push_back(buffer);
  }
  return called.call(buffers.from, buffers.to, buffers.gradient, state, names, spec.kind,
                     numbers_of(spec), count, rate, skipped);
}

std::vector<double> numbers_of(const OptimizerSpec& spec) {
  return {spec.lr,    spec.momentum, spec.weight_decay, spec.beta1,
          spec.beta2, spec.alpha,    spec.eps,          double(spec.spike_delay)};
}

OptimizerSpec spec_of(std::string_view kind, const std::vector<double>& numbers) {
  return {.kind = std::string(kind),
          .lr = numbers[0],
          .momentum = numbers[1],
          .weight_decay = numbers[2],
          .beta1 = numbers[3],
          .beta2 = numbers[4],
          .alpha = numbers[5],
          .eps = numbers[6],
          .spike_delay = std::int64_t(numbers[7])};
}

}  // namespace millrace::stages
