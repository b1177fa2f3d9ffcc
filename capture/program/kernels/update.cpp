#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>

#include "capture/program/kernels/internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/update.cpp"
#include <hwy/foreach_target.h>

#include "capture/program/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels::HWY_NAMESPACE {

bool all_finite(const float* values, std::size_t count) {
  const V most = hn::Set(d, std::numeric_limits<float>::max());
  const auto finite = [&](V v) { return hn::Le(hn::Abs(v), most); };
  std::size_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    const auto first =
        hn::And(finite(hn::LoadU(d, values + i)), finite(hn::LoadU(d, values + i + kLanes)));
    const auto second = hn::And(finite(hn::LoadU(d, values + i + 2 * kLanes)),
                                finite(hn::LoadU(d, values + i + 3 * kLanes)));
    if (!hn::AllTrue(d, hn::And(first, second))) return false;
  }
  for (; i < count; i += kLanes) {
    const V v = load_part(first_lanes(count - i), values + i);
    if (!hn::AllTrue(d, finite(v))) return false;
  }
  return true;
}

float largest(std::span<const float> values) {
  const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  V most = hn::Zero(d);
  each_vector(0, values.size(), [&](const auto& e) HWY_ATTR {
    const V v = e.load(values.data());
    most = hn::Max(most, hn::IfThenElse(hn::IsNaN(v), infinity, hn::Abs(v)));
  });
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

using stages::CorrectionMemory, stages::CorrectionNumbers, stages::CorrectionRule;
using stages::OptimizerInfo, stages::UpdateNumbers;

using Rate = double;

#define FORMULA HWY_INLINE
#include "capture/program/operations/update-inl.h"

// LibTorch's operators, rounding as its vector code on a core does.

HWY_INLINE void lerp_(V& a, V b, double share) {
  const V change = hn::Sub(b, a);
  a = share < 0.5 ? hn::MulAdd(constant(share), change, a)
                  : hn::NegMulAdd(change, constant(1 - share), b);
}
HWY_INLINE void addcdiv_(V& a, V b, V c, double factor) {
  a = hn::Add(a, hn::Div(hn::Mul(constant(factor), b), c));
}
HWY_INLINE void addcdiv_within_(V& a, V b, V c, double factor, double bound) {
  add_(a, hn::Clamp(hn::Div(b, c), constant(-bound), constant(bound)), factor);
}

using std::pow, std::sqrt;
#include "stages/correction_formulas-inl.h"
#include "stages/optimizer_formulas-inl.h"
#undef FORMULA

template <class Formula, class Corrected>
HWY_INLINE void sweep(const UpdateArguments& arguments, double lr, std::size_t begin,
                      std::size_t end, Corrected corrected) {
  const UpdateArguments o = arguments;
  const UpdateNumbers& n = arguments.numbers;
  const Formula formula(n, lr, o.state.steps ? o.state.steps[0] + 1 : 0);
  const double decay = n.decoupled ? 0 : n.weight_decay;
  const V share = constant(n.share), decay_v = constant(decay);
  const V kept = constant(n.decoupled ? 1 - lr * n.weight_decay : 1);
  float *const first = o.state.buffers[0], *const second = o.state.buffers[1];
  const auto step = [&](const auto& elements) {
    const V before = elements.load(o.from);
    V gradient = hn::Mul(elements.load(o.gradient), share);
    gradient = corrected.gradient(elements, before, gradient);
    if (decay != 0) gradient = hn::MulAdd(before, decay_v, gradient);
    V weights = hn::Mul(before, kept), state[2] = {hn::Zero(d), hn::Zero(d)}, scratch;
    if (first) state[0] = elements.load(first);
    if (second) state[1] = elements.load(second);
    formula(weights, gradient, state, scratch);
    if (first) elements.store(first, state[0]);
    if (second) elements.store(second, state[1]);
    elements.store(o.to, weights);
    corrected.updated(elements, before, weights);
  };
  for (std::size_t i = begin; i < end; i += kUpdateBlock) {
    each_vector(i, std::min(end, i + kUpdateBlock), step);
    if constexpr (Corrected::kMeasures) {
      o.sums[i / kUpdateBlock] = double(hn::GetLane(hn::SumOfLanes(d, corrected.way)));
      corrected.way = hn::Zero(d);
    }
  }
}

void update(const UpdateArguments& o, std::size_t begin, std::size_t end) {
  const UpdateNumbers& n = o.numbers;
  const CorrectionMemory& memory = o.memory;
  float* const old = memory.old ? memory.old + oldest(n.correction, memory) * o.count : nullptr;
  Optimizers::visit(n.optimizer, [&]<class Formula>(std::type_identity<Formula>) HWY_ATTR {
    const auto update_by = [&](const auto& corrected) HWY_ATTR {
      sweep<Formula>(o, n.lr * *o.rate, begin, end, corrected);
    };
    visit_correction(n.correction, memory, old, update_by);
  });
}

}  // namespace millrace::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(all_finite);
HWY_EXPORT(largest);
HWY_EXPORT(update);

bool is_finite(std::span<const float> gradient, Share share) {
  const auto [begin, end] = share.of(gradient.size(), kUpdateBlock);
  return HWY_DYNAMIC_DISPATCH(all_finite)(gradient.data() + begin, end - begin);
}

float largest(std::span<const float> values) {
  return HWY_DYNAMIC_DISPATCH(largest)(values);
}

void update(const UpdateArguments& u, Share share) {
  const auto [begin, end] = share.of(std::size_t(u.count), kUpdateBlock);
  HWY_DYNAMIC_DISPATCH(update)(u, begin, end);
}

void update_part(const UpdateArguments& u, const float* gradient, std::size_t begin,
                 std::size_t count) {
  UpdateArguments part = u;
  part.gradient = gradient - begin;  // where element 0 would be
  HWY_DYNAMIC_DISPATCH(update)(part, begin, begin + count);
}

void keep(const UpdateArguments& u, Share share) {
  const auto [begin, end] = share.of(std::size_t(u.count), kUpdateBlock);
  if (u.to != u.from) std::copy(u.from + begin, u.from + end, u.to + begin);
}

std::size_t update_sums(const stages::UpdateNumbers& numbers, std::size_t count) {
  const bool sums = numbers.correction.rule == stages::CorrectionRule::gap_aware;
  return sums ? divided_up(count, kUpdateBlock) : 0;
}

void count_step(const UpdateArguments& u) {
  if (u.state.steps) u.state.steps[0] += 1;
  const stages::CorrectionMemory& memory = u.memory;
  if (memory.newest) *memory.newest = oldest(u.numbers.correction, memory);
  if (!memory.stepped) return;
  const std::size_t sums = update_sums(u.numbers, std::size_t(u.count));
  const auto step =
      float(std::accumulate(u.sums, u.sums + sums, 0.0) / u.numbers.correction.weights);
  *memory.step = *memory.stepped ? 0.99f * *memory.step + 0.01f * step : step;
  *memory.stepped = true;
}

}  // namespace millrace::kernels
#endif
