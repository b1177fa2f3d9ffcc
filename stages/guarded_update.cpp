#include "stages/guarded_update.h"

#include <ATen/ATen.h>                      // operators
#include <ATen/core/dispatch/Dispatcher.h>  // an operator of our own
#include <torch/library.h>                  // its registration

#include <cmath>  // INFINITY, pow

#include "stages/update_kernel.h"

namespace millrace::stages {
namespace {

void optimize(const OptimizerSpec& spec, UpdateBuffers buffers, int count, const at::Tensor& rate,
              const at::Tensor& finite) {
  if (buffers.from.is_cuda() && update_kernel(spec, buffers, count, rate, finite)) return;
  const OptimizerKind& kind = optimizer_kind(spec.kind);
  at::Tensor& gradient = buffers.gradient;
  const at::Tensor lr = rate * spec.lr;
  at::Tensor weights = buffers.from;
  if (count > 1) gradient.div_(count);
  if (spec.weight_decay != 0) {
    if (kind.decoupled) {
      weights = weights * (1 - lr * spec.weight_decay);
    } else {
      gradient.add_(weights, spec.weight_decay);
    }
  }
  NamedTensors state;  // a copy, so that what is made of it can still be turned down
  for (const auto& [name, buffer] : buffers.state) state.emplace_back(name, buffer.clone());
  const at::Tensor made = kind.guarded(spec, lr, weights, gradient, state);
  for (std::size_t i = 0; i < state.size(); ++i) {
    at::Tensor old = buffers.state[i].second;
    old.copy_(at::where(finite, state[i].second, old));
  }
  buffers.to.copy_(at::where(finite, made, buffers.from));
}

}  // namespace

void guarded_update(const OptimizerSpec& spec, UpdateBuffers buffers, int count,
                    const at::Tensor& rate, const at::Tensor& finite) {
  const CorrectionNumbers& n = buffers.correction;
  if (n.rule == CorrectionRule::none)
    return optimize(spec, std::move(buffers), count, rate, finite);
  const CorrectionKind& kind = correction_kind(n.rule);
  if (count > 1) buffers.gradient.div_(count);
  if (kind.correct) kind.correct(n, buffers.memory, buffers.gradient, buffers.from, finite);
  // A recording's tensors are others of the same memory.
  const bool in_place = buffers.to.const_data_ptr() == buffers.from.const_data_ptr();
  const at::Tensor before = in_place ? buffers.from.clone() : buffers.from;
  optimize(spec, buffers, 1, rate, finite);
  kind.updated(n, buffers.memory, before, buffers.to, finite);
}

UpdateNumbers update_numbers(const OptimizerSpec& spec, int count,
                             const CorrectionNumbers& correction) {
  const OptimizerKind& kind = optimizer_kind(spec.kind);
  UpdateNumbers n{.rule = kind.kernel,
                  .share = 1.0 / count,
                  .lr = spec.lr,
                  .momentum = spec.momentum,
                  .weight_decay = spec.weight_decay,
                  .beta1 = spec.beta1,
                  .beta2 = spec.beta2,
                  .alpha = spec.alpha,
                  .eps = spec.eps,
                  .decoupled = kind.decoupled,
                  .correction = correction};
  if (spec.spike_delay > 0) {
    n.spike_momentum = std::pow(spec.momentum, double(spec.spike_delay));
    n.spike_gradient = (1 - n.spike_momentum) / (1 - spec.momentum);
  }
  return n;
}

UpdateState state_of(const NamedTensors& state) {
  UpdateState at;
  for (const auto& [name, buffer] : state) {
    float* data = buffer.mutable_data_ptr<float>();
    if (name == "momentum" || name == "mean") at.first = data;
    if (name == "square") at.second = data;
    if (name == "steps") at.steps = data;
  }
  return at;
}

CorrectionMemory memory_of(CorrectionRule rule, const Memory& memory) {
  const auto floats = [&](std::size_t i) { return memory[i].mutable_data_ptr<float>(); };
  switch (rule) {
    case CorrectionRule::none:
      return {};
    case CorrectionRule::discrepancy:
      return {.shift = floats(0), .change = floats(1)};
    case CorrectionRule::weight_prediction:
      return {.shift = floats(0)};
    case CorrectionRule::gap_aware:
      return {.old = floats(0),
              .newest = memory[1].mutable_data_ptr<std::int64_t>(),
              .step = floats(2),
              .stepped = memory[3].mutable_data_ptr<bool>()};
    case CorrectionRule::dc_asgd:
      return {.old = floats(0),
              .newest = memory[1].mutable_data_ptr<std::int64_t>(),
              .square = floats(2)};
  }
  return {};
}

namespace {

at::Tensor check_and_update_operator(const at::Tensor& from, const at::Tensor& to,
                                     const at::Tensor& gradient, std::vector<at::Tensor> state,
                                     std::vector<std::string> names, std::string kind,
                                     std::vector<double> numbers, std::vector<at::Tensor> memory,
                                     std::vector<double> correction, std::int64_t count,
                                     const at::Tensor& rate, const at::Tensor& skipped,
                                     const std::optional<at::Tensor>& given) {
  const at::Tensor finite =
      given ? *given : at::isfinite(at::linalg_vector_norm(gradient, INFINITY));
  UpdateBuffers buffers{.from = from,
                        .to = to,
                        .gradient = gradient,
                        .state = {},
                        .correction = correction_of(correction),
                        .memory = std::move(memory)};
  for (std::size_t i = 0; i < state.size(); ++i) buffers.state.emplace_back(names[i], state[i]);
  guarded_update(spec_of(kind, numbers), std::move(buffers), int(count), rate, finite);
  if (given) return finite.clone();
  at::Tensor(skipped).add_(finite.logical_not());
  return finite;
}

}  // namespace

TORCH_LIBRARY(millrace, library) {
  library.def(
      "check_and_update(Tensor weights, Tensor(a!) to, Tensor(b!) gradient, Tensor(c!)[] state, "
      "str[] names, str kind, float[] numbers, Tensor(d!)[] memory, float[] correction, int count, "
      "Tensor rate, Tensor(e!) skipped, Tensor? finite) -> Tensor");
}

TORCH_LIBRARY_IMPL(millrace, CompositeExplicitAutograd, library) {
  library.impl("check_and_update", &check_and_update_operator);
}

at::Tensor check_and_update(const OptimizerSpec& spec, UpdateBuffers buffers, int count,
                            const at::Tensor& rate, at::Tensor& skipped, const at::Tensor& finite) {
  static const auto called = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("millrace::check_and_update", "")
                                 .typed<decltype(check_and_update_operator)>();
  std::vector<at::Tensor> state;
  std::vector<std::string> names;
  for (auto& [name, buffer] : buffers.state) {
    names.push_back(name);
    state.push_back(buffer);
  }
  const CorrectionNumbers& n = buffers.correction;
  return called.call(buffers.from, buffers.to, buffers.gradient, state, names, spec.kind,
                     numbers_of(spec), buffers.memory,
                     {double(n.rule), double(n.updates), n.decay, n.lambda}, count, rate, skipped,
                     finite.defined() ? std::optional(finite) : std::nullopt);
}

CorrectionNumbers correction_of(const std::vector<double>& numbers) {
  return {.rule = CorrectionRule(int(numbers[0])),
          .updates = std::int64_t(numbers[1]),
          .decay = numbers[2],
          .lambda = numbers[3]};
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
