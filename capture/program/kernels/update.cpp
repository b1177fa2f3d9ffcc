// The update: one pass over flat buffers.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>

#include "capture/program/kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/update.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Highway wants its own contributions after highway.h.
#include "capture/program/kernels/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

/// A whole vector of each buffer. Stores with a mask are slow on some processors.
struct Whole {
  std::size_t at;
  V load(const float* buffer) const { return hn::LoadU(D(), buffer + at); }
  void store(float* buffer, V v) const { hn::StoreU(v, D(), buffer + at); }
  V only(V v) const { return v; }
};

/// The last few elements.
struct Rest {
  std::size_t at;
  Lanes part;
  V load(const float* buffer) const { return load_part(part, buffer + at); }
  void store(float* buffer, V v) const { store_part(v, part, buffer + at); }
  V only(V v) const { return only_part(part, v); }
};

HWY_INLINE V constant(double value) {
  return hn::Set(D(), float(value));
}

using stages::CorrectionMemory, stages::CorrectionNumbers, stages::CorrectionRule;
using stages::OptimizerInfo, stages::UpdateNumbers;

// LibTorch's operators, rounding as its vectors of a core do.

using Number = V;
using Rate = double;

HWY_INLINE void mul_(V& a, double b) {
  a = hn::Mul(a, constant(b));
}
HWY_INLINE void add_(V& a, double b) {
  a = hn::Add(a, constant(b));
}
HWY_INLINE void add_(V& a, V b) {
  a = hn::Add(a, b);
}
HWY_INLINE void add_(V& a, V b, double factor) {
  a = hn::MulAdd(b, constant(factor), a);
}
HWY_INLINE void div_(V& a, double b) {
  a = hn::Div(a, constant(b));
}
HWY_INLINE void lerp_(V& a, V b, double share) {
  const V change = hn::Sub(b, a);
  a = share < 0.5 ? hn::MulAdd(constant(share), change, a)
                  : hn::NegMulAdd(change, constant(1 - share), b);
}
HWY_INLINE void addcmul_(V& a, V b, V c, double factor) {
  a = hn::MulAdd(hn::Mul(constant(factor), b), c, a);
}
HWY_INLINE void addcdiv_(V& a, V b, V c) {
  a = hn::Add(a, hn::Div(b, c));
}
HWY_INLINE void addcdiv_(V& a, V b, V c, double factor) {
  a = hn::Add(a, hn::Div(hn::Mul(constant(factor), b), c));
}
HWY_INLINE void sqrt_of(V& a, V b) {
  a = hn::Sqrt(b);
}

using std::pow, std::sqrt;
#define FORMULA HWY_INLINE
#include "stages/optimizer_formulas-inl.h"
#undef FORMULA

// Corrections: what becomes of the mean gradient before the rule, what is remembered of the weights
// after it, and what of a block of elements.

struct Uncorrected {
  V gradient(const auto&, V, V g) const { return g; }
  void updated(const auto&, V, V) {}
  void block_over(std::size_t) {}
};

struct Discrepancy : Uncorrected {
  explicit Discrepancy(const CorrectionNumbers& n, const UpdateOperands& o)
      : memory(o.memory),
        decay(constant(n.decay)),
        fresh(constant(1 - n.decay)),
        back(constant(-double(n.updates))) {}
  void updated(const auto& e, V before, V after) {
    const V change =
        hn::MulAdd(hn::Sub(after, before), fresh, hn::Mul(e.load(memory.change), decay));
    e.store(memory.change, change);
    e.store(memory.shift, hn::Mul(change, back));
  }
  const CorrectionMemory memory;
  const V decay, fresh, back;
};

struct WeightPrediction : Uncorrected {
  WeightPrediction(const CorrectionNumbers& n, const UpdateOperands& o)
      : shift(o.memory.shift), ahead(constant(double(n.updates))) {}
  void updated(const auto& e, V before, V after) {
    e.store(shift, hn::Mul(hn::Sub(after, before), ahead));
  }
  float* const shift;
  const V ahead;
};

struct OldWeights : Uncorrected {
  OldWeights(const CorrectionNumbers& n, const UpdateOperands& o)
      : old(o.memory.old + std::size_t(oldest(n, o.memory)) * o.row) {}
  void updated(const auto& e, V, V after) { e.store(old, after); }
  float* const old;
};

struct GapAware : OldWeights {
  GapAware(const CorrectionNumbers& n, const UpdateOperands& o)
      : OldWeights(n, o),
        sums(o.sums),
        stepped(*o.memory.stepped),
        step(constant(*o.memory.step + 1e-20f)),
        sum(hn::Zero(D())) {}
  V gradient(const auto& e, V w, V g) const {
    if (!stepped) return g;
    const V gap = hn::Div(hn::Abs(hn::Sub(w, e.load(old))), step);
    return hn::Div(g, hn::Add(gap, constant(1)));
  }
  void updated(const auto& e, V before, V after) {
    sum = hn::Add(sum, e.only(hn::Abs(hn::Sub(after, before))));
    OldWeights::updated(e, before, after);
  }
  void block_over(std::size_t block) {
    sums[block] = double(hn::GetLane(hn::SumOfLanes(D(), sum)));
    sum = hn::Zero(D());
  }
  double* const sums;
  const bool stepped;
  const V step;
  V sum;
};

struct DelayCompensated : OldWeights {
  DelayCompensated(const CorrectionNumbers& n, const UpdateOperands& o)
      : OldWeights(n, o), squares(o.memory.square), lambda(constant(n.lambda)) {}
  V gradient(const auto& e, V w, V g) const {
    const V g2 = hn::Mul(g, g);
    const V square = hn::MulAdd(g2, constant(0.05), hn::Mul(e.load(squares), constant(0.95)));
    e.store(squares, square);
    const V strength = hn::Div(lambda, hn::Sqrt(hn::Add(square, constant(1e-7))));
    return hn::MulAdd(hn::Mul(g2, hn::Sub(w, e.load(old))), strength, g);
  }
  float* const squares;
  const V lambda;
};

template <class Formula, class Corrected>
HWY_INLINE void sweep(const UpdateNumbers& n, const UpdateOperands& operands, double lr,
                      Corrected corrected) {
  const D d;
  const UpdateOperands o = operands;
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
  for (std::size_t block = 0; block * kUpdateBlock < o.count; ++block) {
    std::size_t i = block * kUpdateBlock;
    const std::size_t end = std::min(o.count, i + kUpdateBlock);
    for (; i + kLanes <= end; i += kLanes) step(Whole{i});
    if (i < end) step(Rest{i, first_lanes(end - i)});
    corrected.block_over(block);
  }
}

template <class Formula>
void update_by(const UpdateNumbers& n, const UpdateOperands& o, double lr) {
  const CorrectionNumbers& c = n.correction;
  switch (c.rule) {
    case CorrectionRule::none:
      return sweep<Formula>(n, o, lr, Uncorrected());
    case CorrectionRule::discrepancy:
      return sweep<Formula>(n, o, lr, Discrepancy(c, o));
    case CorrectionRule::weight_prediction:
      return sweep<Formula>(n, o, lr, WeightPrediction(c, o));
    case CorrectionRule::gap_aware:
      return sweep<Formula>(n, o, lr, GapAware(c, o));
    case CorrectionRule::dc_asgd:
      return sweep<Formula>(n, o, lr, DelayCompensated(c, o));
  }
}

void update(const UpdateNumbers& n, const UpdateOperands& operands, double rate) {
  Optimizers::visit(n.optimizer, [&]<class Formula>(std::type_identity<Formula>) {
    update_by<Formula>(n, operands, n.lr * rate);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(update);

namespace {

UpdateOperands share_of(const UpdateOperands& o, Share share) {
  const auto [begin, end] = share.of(o.count, kUpdateBlock);
  const auto from = [begin = begin](auto* buffer) { return buffer ? buffer + begin : nullptr; };
  return {.from = from(o.from),
          .to = from(o.to),
          .gradient = from(o.gradient),
          .state = {{from(o.state.buffers[0]), from(o.state.buffers[1])}, o.state.steps},
          .memory = {.shift = from(o.memory.shift),
                     .change = from(o.memory.change),
                     .old = from(o.memory.old),
                     .newest = o.memory.newest,
                     .square = from(o.memory.square),
                     .step = o.memory.step,
                     .stepped = o.memory.stepped},
          .sums = o.sums ? o.sums + begin / kUpdateBlock : nullptr,
          .count = end - begin,
          .row = o.count};
}

}  // namespace

bool is_finite(const UpdateOperands& operands, Share share) {
  const UpdateOperands mine = share_of(operands, share);
  return all_finite(mine.gradient, mine.count);
}

void update(const stages::UpdateNumbers& numbers, const UpdateOperands& operands, double rate,
            Share share) {
  HWY_DYNAMIC_DISPATCH(update)(numbers, share_of(operands, share), rate);
}

void keep(const UpdateOperands& operands, Share share) {
  const UpdateOperands mine = share_of(operands, share);
  if (mine.to != mine.from) std::copy_n(mine.from, mine.count, mine.to);
}

std::size_t update_sums(const stages::UpdateNumbers& numbers, std::size_t count) {
  const bool sums = numbers.correction.rule == stages::CorrectionRule::gap_aware;
  return sums ? (count + kUpdateBlock - 1) / kUpdateBlock : 0;
}

void count_step(const stages::UpdateNumbers& numbers, const UpdateOperands& o) {
  if (o.state.steps) o.state.steps[0] += 1;
  const stages::CorrectionMemory& memory = o.memory;
  if (memory.newest) *memory.newest = oldest(numbers.correction, memory);
  if (!memory.stepped) return;
  const double sum = std::accumulate(o.sums, o.sums + update_sums(numbers, o.count), 0.0);
  const auto step = float(sum / double(o.count));
  *memory.step = *memory.stepped ? 0.99f * *memory.step + 0.01f * step : step;
  *memory.stepped = true;
}

}  // namespace millrace::kernels
#endif
