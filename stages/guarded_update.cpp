#include "stages/guarded_update.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <cmath>

namespace millrace::stages {
namespace {

/// `rate`: see apply_formula().
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

at::Tensor check_and_update_operator(const at::Tensor& from, const at::Tensor& to,
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

}  // namespace

UpdateState state_of(const UpdateNumbers& n, const std::vector<at::Tensor>& state) {
  UpdateState at;
  const bool counts = n.counts_steps;
  for (std::size_t i = 0; i < state.size(); ++i) {
    float* const data = state[i].mutable_data_ptr<float>();
    (counts && i + 1 == state.size() ? at.steps : at.buffers[i]) = data;
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

TORCH_LIBRARY(millrace, library) {
  library.class_<NumbersArgument>("Numbers");
  library.def(
      "check_and_update(Tensor weights, Tensor(a!) to, Tensor(b!) gradient, Tensor(c!)[] state, "
      "Tensor(d!)[] memory, __torch__.torch.classes.millrace.Numbers numbers, Tensor rate, "
      "Tensor(e!) skipped, Tensor? finite) -> "
      "Tensor",
      torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, &check_and_update_operator));
}

at::Tensor check_and_update(const UpdateNumbers& n, UpdateBuffers buffers, const at::Tensor& rate,
                            at::Tensor& skipped, const at::Tensor& finite) {
  static const auto called = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("millrace::check_and_update", "")
                                 .typed<decltype(check_and_update_operator)>();
  return called.call(buffers.from, buffers.to, buffers.gradient, buffers.state, buffers.memory,
                     c10::make_intrusive<NumbersArgument>(n), rate, skipped,
                     finite.defined() ? std::optional(finite) : std::nullopt);
}

}  // namespace millrace::stages
