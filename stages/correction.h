// What a stage does about old gradients, beside its optimizer.
#pragma once

#include <ATen/core/Tensor.h>  // at::Tensor

#include <cstdint>  // updates
#include <memory>   // std::unique_ptr<Correction>

#include "stages/correction_spec.h"

namespace millrace::stages {

/// One stage's policy; w is its newest weights, flat. Thread-bound. Runs in no-grad mode. What it
/// does to tensors asks nothing of the host and keeps their addresses, so that it may be recorded.
class Correction {
 public:
  virtual ~Correction() = default;
  /// Whether rate() is all it does: then nothing of it is in the device's work.
  virtual bool only_rate() const { return false; }
  /// What the optimizer's rate is multiplied by at its update number `update` = 0, 1, ...
  virtual double rate(std::int64_t update) const { return 1.0; }
  // `finite` (0-dim, bool): whether the update is made; if not, nothing is remembered of it.
  // Undefined: it is.
  /// Changes the mean `gradient` before the optimizer takes it.
  virtual void correct(at::Tensor& gradient, const at::Tensor& weights, const at::Tensor& finite) {}
  /// Sees the weights after each update.
  virtual void updated(const at::Tensor& weights, const at::Tensor& finite) {}
  /// Forgets all, since the weights have become these by other means.
  virtual void restart(const at::Tensor& weights) {}
  /// What to add to the weights for a forward, and for a backward; undefined: nothing.
  virtual at::Tensor forward_shift() const { return {}; }
  virtual at::Tensor backward_shift() const { return {}; }
};

/// One kind of correction: an entry of the table in correction.cpp.
struct CorrectionKind {
  std::string name, summary;
  std::vector<std::string> keys;  ///< of [correction], beside kind
  /// For a delay of at least one update; null: nothing stands beside the optimizer.
  std::unique_ptr<Correction> (*make)(const CorrectionSpec& spec, const Delay& delay,
                                      const at::Tensor& weights);
};
const std::vector<CorrectionKind>& corrections();

/// Null where nothing is to be done: "none", "local" and "spike-compensation", which are not beside
/// the optimizer, and stages whose gradients are fresh. Throws std::invalid_argument for an unknown
/// kind.
///
/// - "inverse-age": rate / (1 + age in frames), after Zhang et al., arXiv 1511.05950.
/// - "pipemare": rate / age^p, p = 1 - min(update / anneal, 1): PipeMare's T1 (Yang et al., arXiv
///   1910.05124).
/// - "discrepancy": PipeMare's T2. A backward sees w - age d in place of w, an estimate of the
///   weights of its own forward, with d <- g d + (1-g) (change of w), g = decay^(1/age).
/// - "weight-prediction": a forward sees w + age (last change of w), an estimate of the weights of
///   its own backward: SpecTrain (Chen et al., arXiv 1809.02839) where the optimizer is SGD with
///   momentum, XPipe (Guan et al., arXiv 1911.04610) where it is Adam. Where gradients meet later
///   samples, backwards see the same.
/// - "gap-aware": gradient / (1 + |w - w_old| / C), after Barkai et al., arXiv 1909.10802; w_old:
/// the
///   weights `age` updates ago, C: running mean (0.99) of the mean absolute change of an update.
/// - "dc-asgd": gradient + l gradient^2 (w - w_old), l = lambda / sqrt(ms + 1e-7), ms: running mean
///   (0.95) of gradient^2: DC-ASGD-a (Zheng et al., arXiv 1609.08326), a diagonal Fisher
///   information's first-order step from w_old to w.
std::unique_ptr<Correction> make_correction(const CorrectionSpec& spec, const Delay& delay,
                                            const at::Tensor& weights);

}  // namespace millrace::stages
