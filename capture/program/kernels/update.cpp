// The update: one pass over flat buffers, in torch.optim's order of operations.
#include <algorithm>
#include <cmath>
#include <numeric>

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
  hn::Mask<D> part;
  V load(const float* buffer) const { return hn::MaskedLoad(part, D(), buffer + at); }
  void store(float* buffer, V v) const { hn::BlendedStore(v, part, D(), buffer + at); }
  V only(V v) const { return hn::IfThenElseZero(part, v); }
};

HWY_INLINE V constant(double value) {
  return hn::Set(D(), float(value));
}

using stages::CorrectionMemory, stages::CorrectionNumbers, stages::CorrectionRule;
using stages::UpdateNumbers, stages::UpdateRule;

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

/// to = rule(elements, weights, gradient), decay added to the gradient where it is not decoupled.
template <typename Rule, typename Corrected>
HWY_INLINE void sweep(const UpdateNumbers& n, const UpdateOperands& o, const Rule& rule,
                      Corrected corrected) {
  const D d;
  const double decay = n.decoupled ? 0 : n.weight_decay;
  const V scale_v = constant(n.share), decay_v = constant(decay);
  const auto step = [&](const auto& elements) {
    const V weights = elements.load(o.from);
    V gradient = hn::Mul(elements.load(o.gradient), scale_v);
    gradient = corrected.gradient(elements, weights, gradient);
    if (decay != 0) gradient = hn::MulAdd(weights, decay_v, gradient);
    const V made = rule(elements, weights, gradient);
    elements.store(o.to, made);
    corrected.updated(elements, weights, made);
  };
  for (std::size_t block = 0; block * kUpdateBlock < o.count; ++block) {
    std::size_t i = block * kUpdateBlock;
    const std::size_t end = std::min(o.count, i + kUpdateBlock);
    for (; i + kLanes <= end; i += kLanes) step(Whole{i});
    if (i < end) step(Rest{i, hn::FirstN(d, end - i)});
    corrected.block_over(block);
  }
}

template <typename Rule>
HWY_INLINE void sweep(const UpdateNumbers& n, const UpdateOperands& o, const Rule& rule) {
  const CorrectionNumbers& c = n.correction;
  switch (c.rule) {
    case CorrectionRule::none:
      return sweep(n, o, rule, Uncorrected());
    case CorrectionRule::discrepancy:
      return sweep(n, o, rule, Discrepancy(c, o));
    case CorrectionRule::weight_prediction:
      return sweep(n, o, rule, WeightPrediction(c, o));
    case CorrectionRule::gap_aware:
      return sweep(n, o, rule, GapAware(c, o));
    case CorrectionRule::dc_asgd:
      return sweep(n, o, rule, DelayCompensated(c, o));
  }
}

void sgd(const UpdateNumbers& n, const UpdateOperands& o, double lr) {
  const V rate = constant(-lr);
  if (n.momentum == 0)
    return sweep(n, o, [=](const auto&, V w, V g) { return hn::MulAdd(g, rate, w); });
  const V momentum = constant(n.momentum);
  const V slow = constant(-lr * n.spike_momentum), at_once = constant(-lr * n.spike_gradient);
  const bool spikes = n.spike_gradient != 0;
  sweep(n, o, [=, &o](const auto& e, V w, V g) {
    const V m = hn::Add(hn::Mul(e.load(o.state.first), momentum), g);
    e.store(o.state.first, m);
    w = hn::MulAdd(m, slow, w);
    return spikes ? hn::MulAdd(g, at_once, w) : w;
  });
}

void rmsprop(const UpdateNumbers& n, const UpdateOperands& o, double lr) {
  const V alpha = constant(n.alpha), beta = constant(1 - n.alpha), eps = constant(n.eps);
  const V rate = constant(-lr), momentum = constant(n.momentum);
  const bool with_momentum = n.momentum != 0;
  sweep(n, o, [=, &o](const auto& e, V w, V g) {
    const V square = hn::MulAdd(hn::Mul(beta, g), g, hn::Mul(e.load(o.state.second), alpha));
    e.store(o.state.second, square);
    const V root = hn::Add(hn::Sqrt(square), eps);
    if (!with_momentum) return hn::Add(w, hn::Div(hn::Mul(rate, g), root));
    const V m = hn::Add(hn::Mul(e.load(o.state.first), momentum), hn::Div(g, root));
    e.store(o.state.first, m);
    return hn::MulAdd(m, rate, w);
  });
}

void adam(const UpdateNumbers& n, const UpdateOperands& o, double lr) {
  const double steps = o.state.steps[0] + 1;
  const V keep = constant(n.decoupled ? 1 - lr * n.weight_decay : 1);
  const V to_mean = constant(1 - n.beta1), from_mean = constant(n.beta1);
  const bool small = 1 - n.beta1 < 0.5;  // at::lerp's two forms
  const V beta2 = constant(n.beta2), to_square = constant(1 - n.beta2);
  const double unbias1 = 1 - std::pow(n.beta1, steps);
  const double unbias2 = 1 - std::pow(n.beta2, steps);
  const V root2 = constant(std::sqrt(unbias2)), eps = constant(n.eps);
  const V rate = constant(-(lr / unbias1));
  sweep(n, o, [=, &o](const auto& e, V w, V g) {
    w = hn::Mul(w, keep);
    const V old = e.load(o.state.first), change = hn::Sub(g, old);
    const V mean = small ? hn::MulAdd(to_mean, change, old) : hn::NegMulAdd(change, from_mean, g);
    e.store(o.state.first, mean);
    const V square = hn::MulAdd(hn::Mul(to_square, g), g, hn::Mul(e.load(o.state.second), beta2));
    e.store(o.state.second, square);
    const V root = hn::Add(hn::Div(hn::Sqrt(square), root2), eps);
    return hn::Add(w, hn::Div(hn::Mul(rate, mean), root));
  });
}

void update(const UpdateNumbers& n, const UpdateOperands& operands, double rate) {
  const double lr = n.lr * rate;
  switch (n.rule) {
    case UpdateRule::sgd:
      return sgd(n, operands, lr);
    case UpdateRule::rmsprop:
      return rmsprop(n, operands, lr);
    case UpdateRule::adam:
      return adam(n, operands, lr);
  }
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
          .state = {.first = from(o.state.first),
                    .second = from(o.state.second),
                    .steps = o.state.steps},
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
