#include "stages/correction.h"

#include <ATen/ATen.h>  // operators

#include <algorithm>  // min
#include <cmath>      // pow
#include <stdexcept>  // std::invalid_argument

namespace millrace::stages {
namespace {

class InverseAge final : public Correction {
 public:
  explicit InverseAge(const Delay& delay) : factor_(1.0 / double(1 + delay.frames)) {}
  bool only_rate() const override { return true; }
  double rate(std::int64_t) const override { return factor_; }

 private:
  double factor_;
};

class PipeMare final : public Correction {
 public:
  PipeMare(const CorrectionSpec& spec, const Delay& delay)
      : age_(double(delay.frames)), anneal_(double(spec.anneal)) {}
  bool only_rate() const override { return true; }
  double rate(std::int64_t update) const override {
    return std::pow(age_, -(1.0 - std::min(double(update) / anneal_, 1.0)));
  }

 private:
  double age_, anneal_;
};

/// `old` becomes `made`, if it is to.
void keep(at::Tensor& old, const at::Tensor& made, const at::Tensor& finite) {
  old.copy_(finite.defined() ? at::where(finite, made, old) : made);
}

class Discrepancy final : public Correction {
 public:
  Discrepancy(const CorrectionSpec& spec, const Delay& delay, const at::Tensor& weights)
      : age_(double(delay.updates)),
        keep_(std::pow(spec.decay, 1.0 / age_)),
        change_(at::zeros_like(weights)),
        before_(weights.clone()) {}
  void updated(const at::Tensor& weights, const at::Tensor& finite) override {
    keep(change_, change_.mul(keep_).add_(weights - before_, 1.0 - keep_), finite);
    before_.copy_(weights);
  }
  void restart(const at::Tensor& weights) override {
    change_.zero_();
    before_.copy_(weights);
  }
  at::Tensor backward_shift() const override { return change_ * -age_; }

 private:
  double age_, keep_;
  at::Tensor change_, before_;
};

class WeightPrediction final : public Correction {
 public:
  WeightPrediction(const Delay& delay, const at::Tensor& weights)
      : delay_(delay), change_(at::zeros_like(weights)), before_(weights.clone()) {}
  void updated(const at::Tensor& weights, const at::Tensor& finite) override {
    keep(change_, weights - before_, finite);
    before_.copy_(weights);
  }
  void restart(const at::Tensor& weights) override {
    change_.zero_();
    before_.copy_(weights);
  }
  at::Tensor forward_shift() const override { return change_ * double(delay_.updates); }
  at::Tensor backward_shift() const override {
    return delay_.on_later_sample ? forward_shift() : at::Tensor();
  }

 private:
  Delay delay_;
  at::Tensor change_, before_;
};

/// The weights of some updates ago. A ring that the device turns: where it stands is a tensor.
class OldWeights {
 public:
  OldWeights(const Delay& delay, const at::Tensor& weights)
      : ring_(weights.expand({delay.updates + 1, -1}).clone()),
        newest_(at::zeros({1}, weights.options().dtype(at::kLong))) {}
  /// Of `delay` updates ago; the first ones while there were not so many.
  at::Tensor get() const { return ring_.index_select(0, next()).squeeze(0); }
  void push(const at::Tensor& weights, const at::Tensor& finite) {
    const at::Tensor at = next();
    at::Tensor row = ring_.index_select(0, at);
    keep(row, weights.unsqueeze(0), finite);
    ring_.index_copy_(0, at, row);
    keep(newest_, at, finite);
  }
  void restart(const at::Tensor& weights) {
    ring_.copy_(weights);
    newest_.zero_();
  }

 private:
  at::Tensor next() const { return (newest_ + 1).remainder_(ring_.size(0)); }
  at::Tensor ring_;    ///< [updates + 1, weights]
  at::Tensor newest_;  ///< [1]: a row
};

class GapAware final : public Correction {
 public:
  GapAware(const Delay& delay, const at::Tensor& weights)
      : old_(delay, weights),
        before_(weights.clone()),
        step_(at::zeros({}, weights.options())),
        stepped_(at::zeros({}, weights.options().dtype(at::kBool))) {}
  void correct(at::Tensor& gradient, const at::Tensor& weights, const at::Tensor&) override {
    const at::Tensor gap = (weights - old_.get()).abs_().div_(step_ + 1e-20).add_(1);
    gradient.div_(at::where(stepped_, gap, 1.0));
  }
  void updated(const at::Tensor& weights, const at::Tensor& finite) override {
    const at::Tensor step = (weights - before_).abs_().mean();
    keep(step_, at::where(stepped_, step_.mul(0.99).add_(step, 0.01), step), finite);
    keep(stepped_, at::ones_like(stepped_), finite);
    before_.copy_(weights);
    old_.push(weights, finite);
  }
  void restart(const at::Tensor& weights) override {
    old_.restart(weights);
    before_.copy_(weights);
    step_.zero_();
    stepped_.zero_();
  }

 private:
  OldWeights old_;
  at::Tensor before_;
  at::Tensor step_, stepped_;  ///< 0-dim: the running mean, and whether there is one
};

class DelayCompensated final : public Correction {
 public:
  DelayCompensated(const CorrectionSpec& spec, const Delay& delay, const at::Tensor& weights)
      : lambda_(spec.lambda), old_(delay, weights), square_(at::zeros_like(weights)) {}
  void correct(at::Tensor& gradient, const at::Tensor& weights, const at::Tensor& finite) override {
    const at::Tensor square = square_.mul(0.95).addcmul_(gradient, gradient, 0.05);
    const at::Tensor strength = (square + 1e-7).rsqrt_().mul_(lambda_);
    keep(square_, square, finite);
    gradient.add_(gradient.square().mul_(weights - old_.get()).mul_(strength));
  }
  void updated(const at::Tensor& weights, const at::Tensor& finite) override {
    old_.push(weights, finite);
  }
  void restart(const at::Tensor& weights) override {
    old_.restart(weights);
    square_.zero_();
  }

 private:
  double lambda_;
  OldWeights old_;
  at::Tensor square_;
};

template <class Made, class... Arguments>
std::unique_ptr<Correction> make(const Arguments&... arguments) {
  return std::make_unique<Made>(arguments...);
}

}  // namespace

const std::vector<CorrectionKind>& corrections() {
  using Spec = CorrectionSpec;
  static const std::vector<CorrectionKind> table = {
      {"none", "the schedule's bare rule", {}, nullptr},
      {"inverse-age",
       "rate / (1 + age in frames)",
       {},
       [](const Spec&, const Delay& d, const at::Tensor&) { return make<InverseAge>(d); }},
      {"pipemare",
       "rate / age at first, the full rate after some updates",
       {"anneal"},
       [](const Spec& s, const Delay& d, const at::Tensor&) { return make<PipeMare>(s, d); }},
      {"discrepancy",
       "a backward sees an estimate of the weights of its own forward",
       {"decay"},
       [](const Spec& s, const Delay& d, const at::Tensor& w) {
         return make<Discrepancy>(s, d, w);
       }},
      {"weight-prediction",
       "a forward sees an estimate of the weights of its own backward",
       {},
       [](const Spec&, const Delay& d, const at::Tensor& w) {
         return make<WeightPrediction>(d, w);
       }},
      {"spike-compensation",
       "momentum as if the gradient had come when its sample did; sgd with momentum",
       {},
       nullptr},
      {"gap-aware",
       "gradients are divided by how far the weights have gone since",
       {},
       [](const Spec&, const Delay& d, const at::Tensor& w) { return make<GapAware>(d, w); }},
      {"dc-asgd",
       "gradients are moved to the newest weights to first order",
       {"lambda"},
       [](const Spec& s, const Delay& d, const at::Tensor& w) {
         return make<DelayCompensated>(s, d, w);
       }},
      {"local",
       "each stage learns from an auxiliary head of its own, so that no gradient is old",
       {"kernel", "rate"},
       nullptr}};
  return table;
}

std::unique_ptr<Correction> make_correction(const CorrectionSpec& spec, const Delay& delay,
                                            const at::Tensor& weights) {
  for (const CorrectionKind& kind : corrections()) {
    if (kind.name != spec.kind) continue;
    return kind.make && delay.updates > 0 ? kind.make(spec, delay, weights) : nullptr;
  }
  throw std::invalid_argument("correction.kind: unknown \"" + spec.kind + "\"");
}

const std::vector<std::string>& correction_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const CorrectionKind& kind : corrections()) list.push_back(kind.name);
    return list;
  }();
  return names;
}

}  // namespace millrace::stages
