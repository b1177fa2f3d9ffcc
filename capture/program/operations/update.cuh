// The update in one pass: weights, gradients and state are each read and written once. An earlier
// launch finds out whether the whole gradient is finite, and notes what this one changes.
#pragma once

#include "capture/program/cuda/block.cuh"

namespace millrace::gpu {

using stages::CorrectionMemory, stages::CorrectionNumbers, stages::CorrectionRule;
using stages::OptimizerInfo, stages::UpdateNumbers;

using Rate = double;

#define FORMULA DEVICE
#include "capture/program/operations/update-inl.h"

// LibTorch's operators, rounding as its kernels do: products are fused with sums.

DEVICE void lerp_(float& a, const float& b, double share) {
  a = fmaf(float(share), b - a, a);
}
DEVICE void addcdiv_(float& a, const float& b, const float& c, double factor) {
  a = fmaf(float(factor), b / c, a);
}
DEVICE void addcdiv_within_(float& a, const float& b, const float& c, double factor, double bound) {
  a = fmaf(float(factor), fminf(fmaxf(b / c, -float(bound)), float(bound)), a);
}

#include "stages/correction_formulas-inl.h"
#include "stages/optimizer_formulas-inl.h"
#undef FORMULA

/// Calls work(i) for each of the thread's elements.
template <class Work>
DEVICE void each_element(const UpdateArguments& u, const Work& work) {
#pragma unroll 2
  for (long long i = block() * kThreads + thread(); i < u.count; i += u.blocks * kThreads)
    work(int(i));
}

KERNEL(kThreads) look_at_gradient(BY_VALUE UpdateArguments u) {
  start();
  if (block() == 0 && thread() == 0) {
    if (u.state.steps) u.notes->steps = *u.state.steps + 1;
    if (u.memory.newest)
      u.notes->oldest = (*u.memory.newest + 1) % (u.numbers.correction.updates + 1);
  }
  if (u.given) return;
  bool finite = true;
  each_element(u, [&](int i) { finite = finite && fabsf(u.gradient[i]) <= 3.402823466e38f; });
  const bool faulty = meet_any(!finite);
  if (thread() == 0) u.notes->faults[block()] = faulty;
}

/// Combines what all blocks found.
DEVICE bool is_finite(const UpdateArguments& u) {
  if (u.given) return *u.given;
  bool faulty = false;
  for (int i = thread(); i < u.blocks; i += kThreads) faulty = faulty || u.notes->faults[i];
  return !meet_any(faulty);
}

template <class Formula, class Corrected>
DEVICE void sweep(const UpdateArguments& u, const Formula& formula, double lr,
                  Corrected corrected) {
  const UpdateNumbers& n = u.numbers;
  const float share = float(n.share), decay = n.decoupled ? 0 : float(n.weight_decay);
  const float kept = n.decoupled ? float(1 - lr * n.weight_decay) : 1;
  float *const first = u.state.buffers[0], *const second = u.state.buffers[1];
  each_element(u, [&](int i) {
    const Element e{i};
    const float before = u.from[i];
    const float mean = corrected.gradient(e, before, u.gradient[i] * share);
    const float gradient = decay == 0 ? mean : fmaf(decay, before, mean);
    float weight = before * kept, state[2] = {first ? first[i] : 0, second ? second[i] : 0};
    float scratch;
    formula(weight, gradient, state, scratch);
    if (first) first[i] = state[0];
    if (second) second[i] = state[1];
    u.to[i] = weight;
    corrected.updated(e, before, weight);
  });
  if constexpr (Corrected::kMeasures) {
    const double way = sum_of_block<kThreads>(corrected.way);
    if (thread() == 0) u.notes->ways[block()] = way;
  }
}

template <class Formula>
struct Sweep {
  const UpdateArguments& u;
  const Formula& formula;
  double lr;
  template <class Corrected>
  DEVICE void operator()(const Corrected& corrected) const {
    sweep(u, formula, lr, corrected);
  }
};

/// Computes the formula once per block (adam's takes two powers) and updates with it.
struct UpdateBy {
  const UpdateArguments& u;
  const CorrectionNumbers& correction;
  double rate;
  template <class Formula>
  DEVICE void operator()(std::type_identity<Formula>) const {
    static_assert(sizeof(Formula) <= kFormulaFloats * sizeof(float));
    const double lr = u.numbers.lr * rate;
    auto* const formula = reinterpret_cast<Formula*>(shared_memory() + 2 * kThreads);
    if (thread() == 0) *formula = Formula(u.numbers, lr, u.state.steps ? u.notes->steps : 0);
    meet();
    float* const old = u.memory.old ? u.memory.old + u.notes->oldest * u.count : nullptr;
    visit_correction(correction, u.memory, old, Sweep<Formula>{u, *formula, lr});
  }
};

/// Run by one thread: writes what an update changes besides the weights.
DEVICE void note_update(const UpdateArguments& u, bool finite) {
  *u.finite = finite;
  if (!finite && !u.given) *u.skipped += 1;
  if (!finite) return;
  if (u.state.steps) *u.state.steps = u.notes->steps;
  if (u.memory.newest) *u.memory.newest = u.notes->oldest;
}

template <int kOptimizer, CorrectionRule kRule>
KERNEL(kThreads)
update(BY_VALUE UpdateArguments u) {
  start();
  const double rate = *u.rate;
  const bool finite = is_finite(u);
  if (block() == 0 && thread() == 0) note_update(u, finite);
  if (!finite) {
    if (u.to != u.from) each_element(u, [&](int i) { u.to[i] = u.from[i]; });
    return;
  }
  CorrectionNumbers correction = u.numbers.correction;
  correction.rule = kRule;
  Optimizers::visit(kOptimizer, UpdateBy{u, correction, rate});
}

/// The running mean of the distance a weight moves.
KERNEL(kThreads) measure_step(BY_VALUE UpdateArguments u) {
  start();
  double own = 0;
  for (int i = thread(); i < u.blocks; i += kThreads) own += u.notes->ways[i];
  const float step = float(sum_of_block<kThreads>(own) / u.numbers.correction.weights);
  if (thread() != 0 || !*u.finite) return;
  *u.memory.step = *u.memory.stepped ? 0.99f * *u.memory.step + 0.01f * step : step;
  *u.memory.stepped = true;
}

}  // namespace millrace::gpu
