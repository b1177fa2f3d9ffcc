// The table of optimizers, and their formulas: each as torch.optim has it, and as a recording can
// hold it.
#include <ATen/ATen.h>

#include <cmath>

#include "stages/optimizer.h"

namespace millrace::stages {
namespace {

using Spec = OptimizerSpec;
using State = NamedTensors;
using at::Tensor;

/// Shares of momentum and gradient in an update of SGD with momentum: see OptimizerSpec.
std::pair<double, double> spike_shares(const Spec& spec) {
  const double a = std::pow(spec.momentum, double(spec.spike_delay));
  return {a, (1 - a) / (1 - spec.momentum)};
}

void sgd(const Spec& spec, double lr, Tensor& weights, Tensor& gradient, const State& state,
         Tensor&) {
  if (spec.momentum == 0) {
    weights.add_(gradient, -lr);
    return;
  }
  Tensor momentum = find(state, "momentum");
  momentum.mul_(spec.momentum).add_(gradient);
  if (spec.spike_delay == 0) {
    weights.add_(momentum, -lr);
    return;
  }
  const auto [a, b] = spike_shares(spec);
  weights.add_(momentum, -lr * a).add_(gradient, -lr * (1 - a) / (1 - spec.momentum));
}

Tensor guarded_sgd(const Spec& spec, const Tensor& lr, const Tensor& weights,
                   const Tensor& gradient, const State& state) {
  if (spec.momentum == 0) return weights - gradient * lr;
  const Tensor momentum = find(state, "momentum").mul_(spec.momentum).add_(gradient);
  if (spec.spike_delay == 0) return weights - momentum * lr;
  const auto [a, b] = spike_shares(spec);
  return weights - momentum * (lr * a) - gradient * (lr * b);
}

void rmsprop(const Spec& spec, double lr, Tensor& weights, Tensor& gradient, const State& state,
             Tensor& scratch) {
  if (!scratch.defined()) scratch = at::empty_like(weights);
  Tensor square = find(state, "square");
  square.mul_(spec.alpha).addcmul_(gradient, gradient, 1 - spec.alpha);
  at::sqrt_out(scratch, square).add_(spec.eps);
  if (spec.momentum == 0) {
    weights.addcdiv_(gradient, scratch, -lr);
    return;
  }
  Tensor momentum = find(state, "momentum");
  momentum.mul_(spec.momentum).addcdiv_(gradient, scratch);
  weights.add_(momentum, -lr);
}

Tensor guarded_rmsprop(const Spec& spec, const Tensor& lr, const Tensor& weights,
                       const Tensor& gradient, const State& state) {
  const Tensor square =
      find(state, "square").mul_(spec.alpha).addcmul_(gradient, gradient, 1 - spec.alpha);
  const Tensor change = gradient / square.sqrt().add_(spec.eps);
  if (spec.momentum == 0) return weights - change * lr;
  return weights - find(state, "momentum").mul_(spec.momentum).add_(change) * lr;
}

/// Kingma and Ba, arXiv 1412.6980; decoupled decay: Loshchilov and Hutter, arXiv 1711.05101.
void adam(const Spec& spec, double lr, Tensor& weights, Tensor& gradient, const State& state,
          Tensor& scratch) {
  if (!scratch.defined()) scratch = at::empty_like(weights);
  Tensor mean = find(state, "mean"), square = find(state, "square"), count = find(state, "steps");
  const double steps = (count += 1).item<float>();  // exact to 16 million: the corrections are 1
  mean.lerp_(gradient, 1 - spec.beta1);
  square.mul_(spec.beta2).addcmul_(gradient, gradient, 1 - spec.beta2);
  const double correction1 = 1 - std::pow(spec.beta1, steps);
  const double correction2 = 1 - std::pow(spec.beta2, steps);
  at::sqrt_out(scratch, square).div_(std::sqrt(correction2)).add_(spec.eps);
  weights.addcdiv_(mean, scratch, -(lr / correction1));
}

Tensor guarded_adam(const Spec& spec, const Tensor& lr, const Tensor& weights,
                    const Tensor& gradient, const State& state) {
  const Tensor mean = find(state, "mean").lerp_(gradient, 1 - spec.beta1);
  const Tensor square =
      find(state, "square").mul_(spec.beta2).addcmul_(gradient, gradient, 1 - spec.beta2);
  const Tensor count = find(state, "steps").add_(1).to(at::kDouble).squeeze();
  const Tensor unbias1 = 1 - at::pow(spec.beta1, count), unbias2 = 1 - at::pow(spec.beta2, count);
  const Tensor scale = square.sqrt().div_(unbias2.sqrt()).add_(spec.eps);
  return weights - mean / scale * (lr / unbias1);
}

std::vector<std::string> with_momentum(const Spec& spec, std::vector<std::string> names) {
  if (spec.momentum != 0) names.push_back("momentum");
  return names;
}

}  // namespace

const std::vector<OptimizerKind>& optimizers() {
  const auto moments = [](const Spec&) -> std::vector<std::string> {
    return {"mean", "square", "steps"};
  };
  static const std::vector<OptimizerKind> table = {
      {.name = "adam",
       .summary = "a mean of gradients over the root of a mean of their squares",
       .keys = {"beta1", "beta2", "eps"},
       .state = moments,
       .step = adam,
       .guarded = guarded_adam,
       .kernel = UpdateRule::adam},
      {.name = "adamw",
       .summary = "adam, with weight decay apart from the gradient",
       .keys = {"beta1", "beta2", "eps"},
       .decoupled = true,
       .state = moments,
       .step = adam,
       .guarded = guarded_adam,
       .kernel = UpdateRule::adam},
      {.name = "rmsprop",
       .summary = "the gradient over the root of a mean of its squares",
       .keys = {"momentum", "alpha", "eps"},
       .state = [](const Spec& spec) { return with_momentum(spec, {"square"}); },
       .step = rmsprop,
       .guarded = guarded_rmsprop,
       .kernel = UpdateRule::rmsprop},
      {.name = "sgd",
       .summary = "the gradient, or a running sum of gradients",
       .keys = {"momentum"},
       .state = [](const Spec& spec) { return with_momentum(spec, {}); },
       .step = sgd,
       .guarded = guarded_sgd,
       .kernel = UpdateRule::sgd}};
  return table;
}

}  // namespace millrace::stages
