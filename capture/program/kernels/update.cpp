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

/// to = rule(elements, weights, gradient), decay added to the gradient where it is not decoupled.
template <typename Rule>
HWY_INLINE void sweep(const UpdateOperands& o, double decay, float scale, const Rule& rule) {
  const D d;
  const V scale_v = hn::Set(d, scale), decay_v = constant(decay);
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

void sgd(const UpdateRule& rule, const UpdateOperands& o, double lr, float scale) {
  const V rate = constant(-lr);
  if (rule.momentum == 0) {
    return sweep(o, rule.weight_decay, scale,
                 [=](const auto&, V w, V g) { return hn::MulAdd(g, rate, w); });
  }
  const V momentum = constant(rule.momentum);
  // Spike compensation; without it a is 1 and nothing of the gradient goes in at once.
  const double a = rule.spike_delay > 0 ? std::pow(rule.momentum, double(rule.spike_delay)) : 1.0;
  const V slow = constant(-lr * a), at_once = constant(-lr * (1 - a) / (1 - rule.momentum));
  sweep(o, rule.weight_decay, scale, [=, &o](const auto& e, V w, V g) {
    const V m = hn::Add(hn::Mul(e.load(o.momentum), momentum), g);
    e.store(o.momentum, m);
    w = hn::MulAdd(m, slow, w);
    return a < 1 ? hn::MulAdd(g, at_once, w) : w;
  });
}

void rmsprop(const UpdateRule& rule, const UpdateOperands& o, double lr, float scale) {
  const V alpha = constant(rule.alpha), beta = constant(1 - rule.alpha), eps = constant(rule.eps);
  const V rate = constant(-lr), momentum = constant(rule.momentum);
  const bool with_momentum = rule.momentum != 0;
  sweep(o, rule.weight_decay, scale, [=, &o](const auto& e, V w, V g) {
    const V square = hn::MulAdd(hn::Mul(beta, g), g, hn::Mul(e.load(o.square), alpha));
    e.store(o.square, square);
    const V root = hn::Add(hn::Sqrt(square), eps);
    if (!with_momentum) return hn::Add(w, hn::Div(hn::Mul(rate, g), root));
    const V m = hn::Add(hn::Mul(e.load(o.momentum), momentum), hn::Div(g, root));
    e.store(o.momentum, m);
    return hn::MulAdd(m, rate, w);
  });
}

void adam(const UpdateRule& rule, const UpdateOperands& o, double lr, float scale) {
  const double steps = o.steps[0] += 1;
  const bool decoupled = rule.kind == UpdateRule::Kind::kAdamW;
  const V keep = constant(decoupled ? 1 - lr * rule.weight_decay : 1);
  const V to_mean = constant(1 - rule.beta1), from_mean = constant(rule.beta1);
  const bool small = 1 - rule.beta1 < 0.5;  // at::lerp's two forms
  const V beta2 = constant(rule.beta2), to_square = constant(1 - rule.beta2);
  const double unbias1 = 1 - std::pow(rule.beta1, steps);
  const double unbias2 = 1 - std::pow(rule.beta2, steps);
  const V root2 = constant(std::sqrt(unbias2)), eps = constant(rule.eps);
  const V rate = constant(-(lr / unbias1));
  sweep(o, decoupled ? 0 : rule.weight_decay, scale, [=, &o](const auto& e, V w, V g) {
    w = hn::Mul(w, keep);
    const V old = e.load(o.mean), change = hn::Sub(g, old);
    const V mean = small ? hn::MulAdd(to_mean, change, old) : hn::NegMulAdd(change, from_mean, g);
    e.store(o.mean, mean);
    const V square = hn::MulAdd(hn::Mul(to_square, g), g, hn::Mul(e.load(o.square), beta2));
    e.store(o.square, square);
    const V root = hn::Add(hn::Div(hn::Sqrt(square), root2), eps);
    return hn::Add(w, hn::Div(hn::Mul(rate, mean), root));
  });
}

void update(const UpdateRule& rule, const UpdateOperands& operands, double lr, float scale) {
  if (rule.kind == UpdateRule::Kind::kSgd) return sgd(rule, operands, lr, scale);
  if (rule.kind == UpdateRule::Kind::kRmsProp) return rmsprop(rule, operands, lr, scale);
  adam(rule, operands, lr, scale);
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(update);

void update(const UpdateRule& rule, const UpdateOperands& operands, double lr,
            float gradient_scale) {
  HWY_DYNAMIC_DISPATCH(update)(rule, operands, lr, gradient_scale);
}

bool guarded_update(const UpdateRule& rule, const UpdateOperands& operands, double lr,
                    float gradient_scale) {
  if (all_finite(operands.gradient, operands.count)) {
    update(rule, operands, lr, gradient_scale);
    return true;
  }
  if (operands.to != operands.from) std::copy_n(operands.from, operands.count, operands.to);
  return false;
}

}  // namespace millrace::kernels
#endif
