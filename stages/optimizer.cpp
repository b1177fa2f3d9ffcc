#include "stages/optimizer.h"

#include <ATen/ATen.h>
#include <torch/custom_class.h>

#include <cmath>
#include <numbers>
#include <stdexcept>
#include <type_traits>

#include "stages/operators.h"

namespace millrace::stages {
namespace {

using Number = at::Tensor;

void mul_(Number& a, double b) {
  a.mul_(b);
}
void add_(Number& a, const auto& b) {
  a.add_(b);
}
void div_(Number& a, const auto& b) {
  a.div_(b);
}
void lerp_(Number& a, const Number& b, double share) {
  a.lerp_(b, share);
}
void addcmul_(Number& a, const Number& b, const Number& c, double factor) {
  a.addcmul_(b, c, factor);
}
void addcdiv_(Number& a, const Number& b, const Number& c, double factor = 1) {
  a.addcdiv_(b, c, factor);
}
void addcdiv_(Number& a, const Number& b, const Number& c, const at::Tensor& factor) {
  a.add_(b / c * factor);
}
void add_(Number& a, const Number& b, double factor) {
  a.add_(b, factor);
}
void add_(Number& a, const Number& b, const at::Tensor& factor) {
  a.add_(b * factor);
}
void addcdiv_within_(Number& a, const Number& b, const Number& c, const auto& factor,
                     const auto& bound) {
  add_(a, (b / c).clamp_(-bound, bound), factor);
}
void sqrt_of(Number& a, const Number& b) {
  if (!a.defined()) a = at::empty_like(b);
  at::sqrt_out(a, b);
}

using std::pow, std::sqrt;
#define FORMULA inline
namespace rate_is_number {
using Rate = double;
#include "stages/optimizer_formulas-inl.h"
}  // namespace rate_is_number
namespace rate_is_tensor {
using Rate = at::Tensor;
#include "stages/optimizer_formulas-inl.h"
}  // namespace rate_is_tensor
#undef FORMULA

constexpr auto& kInfos = rate_is_number::Optimizers::kInfos;

int number_of(const std::string& name) {
  for (std::size_t number = 0; number < std::size(kInfos); ++number) {
    if (kInfos[number].name == name) return int(number);
  }
  throw std::invalid_argument("optimizer.kind: unknown \"" + name + "\"");
}

/// The constants of an update of `spec` with the mean of `count` gradients.
UpdateNumbers update_numbers(const OptimizerSpec& spec, int count) {
  const int number = number_of(spec.kind);
  UpdateNumbers n{.optimizer = number,
                  .count = count,
                  .share = 1.0 / count,
#define FIELD(name, ...) .name = spec.name,
                  MILLRACE_OPTIMIZER_KEYS(FIELD)
#undef FIELD
                      .decoupled = kInfos[number].decoupled,
                  .counts_steps = kInfos[number].counts_steps,
                  .correction = {}};
  if (spec.spike_delay > 0) {
    n.spike_momentum = std::pow(spec.momentum, double(spec.spike_delay));
    n.spike_gradient = spec.momentum == 1 ? double(spec.spike_delay)
                                          : (1 - n.spike_momentum) / (1 - spec.momentum);
  }
  return n;
}

void orthogonalize(const at::Tensor& gradient, const at::Tensor& mean, at::IntArrayRef places,
                   double decay, std::int64_t count) {
  const at::Tensor finite = at::isfinite(at::linalg_vector_norm(gradient, INFINITY));
  const at::Tensor next = mean.mul(decay).add_(gradient, (1 - decay) / double(count));
  for (std::size_t i = 0; i < places.size(); i += 2) {
    const at::Tensor c = mean.narrow(0, places[i], places[i + 1]);
    const at::Tensor g = gradient.narrow(0, places[i], places[i + 1]);
    // 0 / 0 at the first gradient.
    const at::Tensor share = (g * c).sum().div_((c * c).sum()).nan_to_num_(0, 0, 0);
    g.addcmul_(c, share, -1);
  }
  mean.copy_(at::where(finite, next, mean));
}

/// The optimizer's formula and its weight decay: changes `weights`, `gradient` and `state`
/// (Optimizer::buffers()) in place, flat and of one layout. `Rate`: double, to round as
/// torch.optim, or a 0-dim double tensor on the device, which rounds differently.
template <class Rate>
void apply_formula(const UpdateNumbers& n, const Rate& lr, at::Tensor& weights,
                   at::Tensor& gradient, std::vector<at::Tensor> state) {
  constexpr bool kNumber = std::is_same_v<Rate, double>;
  using List = std::conditional_t<kNumber, rate_is_number::Optimizers, rate_is_tensor::Optimizers>;
  if (n.weight_decay != 0 && n.decoupled) weights.mul_(1 - lr * n.weight_decay);
  if (n.weight_decay != 0 && !n.decoupled) gradient.add_(weights, n.weight_decay);
  Rate steps{};  // exact up to 16 million, where the corrections are 1
  if constexpr (kNumber) {
    if (n.counts_steps) steps = state.back().add_(1).item<float>();
  } else {
    if (n.counts_steps) steps = state.back().add_(1).to(at::kDouble).squeeze();
  }
  at::Tensor scratch;
  List::visit(n.optimizer, [&]<class Formula>(std::type_identity<Formula>) {
    Formula(n, lr, steps)(weights, gradient, state.data(), scratch);
  });
}

struct UpdateBuffers {
  at::Tensor from, to, gradient;
  std::vector<at::Tensor> state, memory;
};

template <class Rate>
void apply(const UpdateNumbers& n, UpdateBuffers buffers, const Rate& rate) {
  const CorrectionKind& kind = correction_kind(n.correction.rule);
  at::Tensor &gradient = buffers.gradient, &from = buffers.from, &to = buffers.to;
  if (n.count > 1) gradient.div_(n.count);
  if (kind.correct) kind.correct(n.correction, buffers.memory, gradient, from);
  // recordings have distinct tensors on the same memory
  const bool in_place = to.const_data_ptr() == from.const_data_ptr();
  const at::Tensor before = kind.updated && in_place ? from.clone() : from;
  if (!in_place) to.copy_(from);
  apply_formula(n, rate, to, gradient, buffers.state);
  if (kind.updated) kind.updated(n.correction, buffers.memory, before, to);
}

/// For a device that the host doesn't wait for: updates copies, and takes them if `finite`.
void apply_if(const at::Tensor& finite, const UpdateNumbers& n, const UpdateBuffers& buffers,
              const at::Tensor& rate) {
  UpdateBuffers made = buffers;
  made.to = at::empty_like(buffers.to);
  for (auto* const copied : {&made.state, &made.memory}) {
    for (at::Tensor& buffer : *copied) buffer = buffer.clone();
  }
  apply(n, made, at::Tensor(rate * n.lr));
  const auto take = [&](const auto& old, const auto& fresh) {
    for (std::size_t i = 0; i < old.size(); ++i) old[i].copy_(at::where(finite, fresh[i], old[i]));
  };
  buffers.to.copy_(at::where(finite, made.to, buffers.from));
  take(buffers.state, made.state);
  take(buffers.memory, made.memory);
}

at::Tensor check_and_update(const at::Tensor& from, const at::Tensor& to,
                            const at::Tensor& gradient, std::vector<at::Tensor> state,
                            std::vector<at::Tensor> memory,
                            const c10::intrusive_ptr<NumbersArgument>& argument,
                            const at::Tensor& rate, const at::Tensor& skipped,
                            const std::optional<at::Tensor>& given) {
  const at::Tensor finite =
      given ? *given : at::isfinite(at::linalg_vector_norm(gradient, INFINITY));
  const UpdateNumbers& n = argument->numbers;
  const UpdateBuffers buffers{from, to, gradient, std::move(state), std::move(memory)};
  if (!from.is_cpu()) {
    apply_if(finite, n, buffers, rate);
  } else if (finite.item<bool>()) {
    apply(n, buffers, rate.item<double>() * n.lr);
  } else {
    to.copy_(from);
  }
  if (given) return finite.clone();
  skipped.add_(finite.logical_not());
  return finite;
}

TORCH_LIBRARY(millrace, library) {
  library.class_<NumbersArgument>("Numbers");
}
const Operator<check_and_update> update_operator(
    "check_and_update(Tensor weights, Tensor(a!) to, Tensor(b!) gradient, Tensor(c!)[] state, "
    "Tensor(d!)[] memory, __torch__.torch.classes.millrace.Numbers numbers, Tensor rate, "
    "Tensor(e!) skipped, Tensor? finite) -> Tensor");
const Operator<orthogonalize> orthogonalize_operator(
    "orthogonalize(Tensor(a!) gradient, Tensor(b!) mean, int[] places, float decay, int count) -> "
    "()");

}  // namespace

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerInfo& info : kInfos) names.push_back(info.name);
  return names;
}

const OptimizerInfo& optimizer_info(const std::string& name) {
  return kInfos[number_of(name)];
}

Optimizer::Optimizer(const OptimizerSpec& spec, const at::Tensor& weights,
                     std::vector<std::int64_t> places)
    : places_(std::move(places)), spec_(spec) {
  const OptimizerInfo& info = optimizer_info(spec.kind);
  for (const char* const name : info.state) {
    if (name && (name != std::string("momentum") || spec.momentum != 0))
      state_.emplace_back(name, at::zeros_like(weights));
  }
  if (info.counts_steps) state_.emplace_back("steps", at::zeros({1}, weights.options()));
  if (spec.orthogonal == 0) return;
  mean_ = at::zeros_like(weights);
  state_.emplace_back("orthogonal", mean_);
}

void Optimizer::orthogonalize(at::Tensor& gradient, int count) {
  if (!mean_.defined()) return;
  orthogonalize_operator(gradient, mean_, places_, spec_.orthogonal, count);
}

at::Tensor Optimizer::update(const at::Tensor& from, const at::Tensor& to, at::Tensor& gradient,
                             int count, const at::Tensor& rate, at::Tensor& skipped,
                             const at::Tensor& finite, const Correction* correction) {
  orthogonalize(gradient, count);
  UpdateNumbers numbers = update_numbers(spec_, count);
  if (correction) numbers.correction = correction->numbers();
  return update_operator(from, to, gradient, buffers(),
                         correction ? correction->memory() : Memory(),
                         c10::make_intrusive<NumbersArgument>(numbers), rate, skipped,
                         finite.defined() ? std::optional(finite) : std::nullopt);
}

std::vector<at::Tensor> Optimizer::buffers() const {
  std::vector<at::Tensor> all;
  for (const auto& [name, buffer] : state_) {
    if (!buffer.is_same(mean_)) all.push_back(buffer);
  }
  return all;
}

std::int64_t Optimizer::bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [name, buffer] : state_) bytes += std::int64_t(buffer.nbytes());
  return bytes;
}

double scheduled_rate(const OptimizerSpec& spec, std::int64_t updates) {
  const std::int64_t after = updates - spec.warmup;
  if (after < 0) {
    return spec.start_factor + (1 - spec.start_factor) * double(updates) / double(spec.warmup);
  }
  if (spec.schedule == "step") return std::pow(spec.gamma, double(after / spec.step_size));
  if (spec.schedule != "cosine" || spec.lr <= 0) return 1;
  const double wave = (1 + std::cos(std::numbers::pi * double(after) / double(spec.T_max))) / 2;
  return (spec.eta_min + (spec.lr - spec.eta_min) * wave) / spec.lr;
}

bool has_constant_rate(const OptimizerSpec& spec) {
  return spec.schedule == "constant" && spec.warmup == 0;
}

}  // namespace millrace::stages
