// The update: one pass over flat buffers, in torch.optim's order of operations.
#include <algorithm>
#include <cmath>

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
};

/// The last few elements.
struct Rest {
  std::size_t at;
  hn::Mask<D> part;
  V load(const float* buffer) const { return hn::MaskedLoad(part, D(), buffer + at); }
  void store(float* buffer, V v) const { hn::BlendedStore(v, part, D(), buffer + at); }
};

HWY_INLINE V constant(double value) {
  return hn::Set(D(), float(value));
}

using stages::UpdateNumbers, stages::UpdateRule;

/// to = rule(elements, weights, gradient), decay added to the gradient where it is not decoupled.
template <typename Rule>
HWY_INLINE void sweep(const UpdateNumbers& n, const UpdateOperands& o, const Rule& rule) {
  const D d;
  const double decay = n.decoupled ? 0 : n.weight_decay;
  const V scale_v = constant(n.share), decay_v = constant(decay);
  const auto step = [&](const auto& elements) {
    const V weights = elements.load(o.from);
    V gradient = hn::Mul(elements.load(o.gradient), scale_v);
    if (decay != 0) gradient = hn::MulAdd(weights, decay_v, gradient);
    elements.store(o.to, rule(elements, weights, gradient));
  };
  std::size_t i = 0;
  for (; i + kLanes <= o.count; i += kLanes) step(Whole{i});
  if (i < o.count) step(Rest{i, hn::FirstN(d, o.count - i)});
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
  const auto [begin, end] = share.of(o.count, 16);
  const auto from = [begin = begin](auto* buffer) { return buffer ? buffer + begin : nullptr; };
  return {.from = from(o.from),
          .to = from(o.to),
          .gradient = from(o.gradient),
          .state = {.first = from(o.state.first),
                    .second = from(o.state.second),
                    .steps = o.state.steps},
          .count = end - begin};
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

void count_step(const UpdateOperands& operands) {
  if (operands.state.steps) operands.state.steps[0] += 1;
}

}  // namespace millrace::kernels
#endif
