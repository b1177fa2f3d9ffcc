#include "stages/correction.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace millrace::stages {
namespace {

using at::Tensor;
using Spec = CorrectionSpec;
using Numbers = CorrectionNumbers;

double inverse_age(const Spec&, const Delay& delay, std::int64_t) {
  return 1.0 / double(1 + delay.frames);
}

double pipemare(const Spec& spec, const Delay& delay, std::int64_t update) {
  const double annealed = std::min(double(update) / double(spec.anneal), 1.0);
  return std::pow(double(delay.frames), annealed - 1);
}

// Memory of discrepancy: {shift, change}; of weight prediction: {shift}. Passes add shift.

void discrepancy(const Numbers& n, const Memory& memory, const Tensor& before,
                 const Tensor& after) {
  const Tensor &shift = memory[0], &change = memory[1];
  change.mul_(n.decay).add_(after - before, 1.0 - n.decay);
  shift.copy_(change * -double(n.updates));
}

void weight_prediction(const Numbers& n, const Memory& memory, const Tensor& before,
                       const Tensor& after) {
  memory[0].copy_((after - before).mul_(double(n.updates)));
}

// Memory of the other corrections begins with old weights: {ring [updates + 1, weights], newest
// [1]}, where `newest` is a row of the ring, advanced on the device.

Memory old_weights(const Delay& delay, const Tensor& weights, Memory more) {
  more.insert(more.begin(), {weights.expand({delay.updates + 1, -1}).clone(),
                             at::zeros({1}, weights.options().dtype(at::kLong))});
  return more;
}
/// The oldest row, which the next weights overwrite.
Tensor oldest(const Memory& memory) {
  return (memory[1] + 1).remainder_(memory[0].size(0));
}
/// The weights `updates` updates ago, or the first ones.
Tensor old_of(const Memory& memory) {
  return memory[0].index_select(0, oldest(memory)).squeeze(0);
}
void push(const Numbers&, const Memory& memory, const Tensor&, const Tensor& after) {
  memory[1].copy_(oldest(memory));
  memory[0].index_copy_(0, memory[1], after.unsqueeze(0));
}

// Gap-aware adds {step, stepped}, 0-dim: the running mean, and whether it has a value.

void divide_by_gap(const Numbers&, const Memory& memory, Tensor& gradient, const Tensor& weights) {
  const Tensor gap = (weights - old_of(memory)).abs_().div_(memory[2] + 1e-20).add_(1);
  gradient.div_(at::where(memory[3], gap, 1.0));
}

void measure_step(const Numbers& n, const Memory& memory, const Tensor& before,
                  const Tensor& after) {
  const Tensor &mean = memory[2], &stepped = memory[3];
  const Tensor step = (after - before).abs_().sum() / n.weights;
  mean.copy_(at::where(stepped, mean.mul(0.99).add_(step, 0.01), step));
  stepped.fill_(true);
  push(n, memory, before, after);
}

// DC-ASGD adds {square}.

void compensate(const Numbers& n, const Memory& memory, Tensor& gradient, const Tensor& weights) {
  const Tensor& square = memory[2];
  square.mul_(0.95).addcmul_(gradient, gradient, 0.05);
  const Tensor strength = (square + 1e-7).rsqrt_().mul_(n.lambda);
  gradient.add_(gradient.square().mul_(weights - old_of(memory)).mul_(strength));
}

}  // namespace

const std::vector<CorrectionKind>& corrections() {
  static const std::vector<CorrectionKind> table = {
      {.name = "none", .summary = "the schedule's bare rule"},
      {.name = "inverse-age", .summary = "rate / (1 + age in frames)", .rate = inverse_age},
      {.name = "pipemare",
       .summary = "rate / age at first, the full rate after some updates",
       .rate = pipemare},
      {.name = "discrepancy",
       .summary = "a backward sees an estimate of the weights of its own forward",
       .kernel = CorrectionRule::discrepancy,
       .memory = [](const Delay&, const Tensor& w) -> Memory {
         return {at::zeros_like(w), at::zeros_like(w)};
       },
       .names = {"correction_shift", "correction_change"},
       .updated = discrepancy},
      {.name = "weight-prediction",
       .summary = "a forward sees an estimate of the weights of its own backward",
       .kernel = CorrectionRule::weight_prediction,
       .memory = [](const Delay&, const Tensor& w) -> Memory { return {at::zeros_like(w)}; },
       .names = {"correction_shift"},
       .updated = weight_prediction},
      {.name = "spike-compensation",
       .summary = "momentum as if the gradient had come when its sample did; sgd with momentum"},
      {.name = "gap-aware",
       .summary = "gradients are divided by how far the weights have gone since",
       .kernel = CorrectionRule::gap_aware,
       .memory =
           [](const Delay& delay, const Tensor& w) {
             return old_weights(
                 delay, w,
                 {at::zeros({}, w.options()), at::zeros({}, w.options().dtype(at::kBool))});
           },
       .names = {"", "", "correction_step", "correction_stepped"},
       .correct = divide_by_gap,
       .updated = measure_step},
      {.name = "dc-asgd",
       .summary = "gradients are moved to the newest weights to first order",
       .kernel = CorrectionRule::dc_asgd,
       .memory = [](const Delay& delay,
                    const Tensor& w) { return old_weights(delay, w, {at::zeros_like(w)}); },
       .names = {"", "", "correction_square"},
       .correct = compensate,
       .updated = push},
      {.name = "local",
       .summary =
           "each stage learns from an auxiliary head of its own, so that no gradient is old"},
      {.name = "deep-supervision",
       .summary = "each stage learns from an auxiliary head on the newest sample and, more weakly, "
                  "from downstream's gradient on an older one"}};
  return table;
}

const CorrectionKind& correction_kind(CorrectionRule rule) {
  return *std::ranges::find(corrections(), rule, &CorrectionKind::kernel);
}

Correction::Correction(const CorrectionKind& kind, const CorrectionSpec& spec, const Delay& delay,
                       const at::Tensor& weights, std::int64_t count)
    : kind_(kind),
      spec_(spec),
      delay_(delay),
      numbers_{.rule = kind.kernel,
               .updates = delay.updates,
               .decay = std::pow(spec.decay, 1.0 / double(delay.updates)),
               .lambda = spec.lambda,
               .weights = double(count)} {
  if (kind.memory) memory_ = kind.memory(delay, weights);
}

void Correction::restart(const at::Tensor& weights) {
  if (!kind_.memory) return;
  const Memory fresh = kind_.memory(delay_, weights);
  for (std::size_t i = 0; i < fresh.size(); ++i) memory_[i].copy_(fresh[i]);
}

NamedTensors Correction::state() const {
  NamedTensors state;
  for (std::size_t i = 0; i < kind_.names.size(); ++i)
    if (!kind_.names[i].empty()) state.emplace_back(kind_.names[i], memory_[i]);
  return state;
}

at::Tensor Correction::forward_shift() const {
  return numbers_.rule == CorrectionRule::weight_prediction ? memory_[0] : at::Tensor();
}

at::Tensor Correction::backward_shift() const {
  if (numbers_.rule == CorrectionRule::discrepancy) return memory_[0];
  return delay_.on_later_sample ? forward_shift() : at::Tensor();
}

std::optional<Correction> make_correction(const CorrectionSpec& spec, const Delay& delay,
                                          const at::Tensor& weights, std::int64_t count) {
  for (const CorrectionKind& kind : corrections()) {
    if (kind.name != spec.kind) continue;
    if (delay.updates == 0 || !(kind.rate || kind.memory)) return {};
    return Correction(kind, spec, delay, weights, count);
  }
  throw std::invalid_argument("correction.kind: unknown \"" + spec.kind + "\"");
}

std::vector<std::string> correction_names() {
  std::vector<std::string> names;
  for (const CorrectionKind& kind : corrections()) names.push_back(kind.name);
  return names;
}

}  // namespace millrace::stages
