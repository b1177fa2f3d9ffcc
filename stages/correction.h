#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stages/training_spec.h"
#include "stages/update_numbers.h"

namespace millrace::stages {

/// Buffers laid out as the weights, rings of them, or single numbers, in its kind's order.
using Memory = std::vector<at::Tensor>;
/// By name.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// An entry of the table in correction.cpp. The functions change memory in place and use only
/// tensors on its device, without synchronizing with the host, so they can be recorded.
struct CorrectionKind {
  std::string name, summary;
  /// Factor on the optimizer's rate at its update number `update` = 0, 1, ...; null: 1.
  double (*rate)(const CorrectionSpec& spec, const Delay& delay, std::int64_t update) = nullptr;
  /// The rest is null if only the rate changes. `kernel`: formulas in the update kernel.
  CorrectionRule kernel = CorrectionRule::none;
  Memory (*memory)(const Delay& delay, const at::Tensor& weights) = nullptr;
  /// The memory's names in checkpoints, in order; "": not in them, since it is of older weights.
  std::vector<std::string> names = {};
  /// Changes the mean `gradient` before the optimizer uses it. Null: unchanged.
  void (*correct)(const CorrectionNumbers& n, const Memory& memory, at::Tensor& gradient,
                  const at::Tensor& weights) = nullptr;
  /// Changes the memory after an update of weights `before` to `after`. Null: nothing to do.
  void (*updated)(const CorrectionNumbers& n, const Memory& memory, const at::Tensor& before,
                  const at::Tensor& after) = nullptr;
};
const std::vector<CorrectionKind>& corrections();
const CorrectionKind& correction_kind(CorrectionRule rule);

/// A stage's correction of stale gradients, beside its optimizer. Thread-bound. In no-grad mode.
class Correction {
 public:
  Correction(const CorrectionKind& kind, const CorrectionSpec& spec, const Delay& delay,
             const at::Tensor& weights, std::int64_t count);
  double rate(std::int64_t update) const {
    return kind_.rate ? kind_.rate(spec_, delay_, update) : 1;
  }
  /// Resets the memory, after the weights have been replaced.
  void restart(const at::Tensor& weights);
  /// Added to the weights for a forward, and for a backward; undefined: nothing.
  at::Tensor forward_shift() const;
  at::Tensor backward_shift() const;

  const CorrectionNumbers& numbers() const { return numbers_; }
  const Memory& memory() const { return memory_; }  ///< aliases
  /// The named part of memory(), with its names.
  NamedTensors state() const;

 private:
  const CorrectionKind& kind_;
  CorrectionSpec spec_;
  Delay delay_;
  CorrectionNumbers numbers_;
  Memory memory_;
};

/// None for "none", for "local", "deep-supervision" and "spike-compensation", which are implemented
/// elsewhere, and for stages with fresh gradients. Throws std::invalid_argument for an unknown
/// kind.
///
/// - "inverse-age": rate / (1 + age in frames), after Zhang et al., arXiv 1511.05950.
/// - "pipemare": rate / age^p, p = 1 - min(update / anneal, 1): PipeMare's T1 (Yang et al., arXiv
///   1910.05124).
/// - "discrepancy": PipeMare's T2. A backward sees w - age d instead of w, an estimate of the
///   weights of its own forward, with d <- g d + (1-g) (change of w), g = decay^(1/age).
/// - "weight-prediction": a forward sees w + age (last change of w), an estimate of the weights of
///   its own backward: SpecTrain (Chen et al., arXiv 1809.02839) with SGD with momentum, XPipe
///   (Guan et al., arXiv 1911.04610) with Adam. Where gradients meet later samples, backwards see
///   the shifted weights, too.
/// - "gap-aware": gradient / (1 + |w - w_old| / C), after Barkai et al., arXiv 1909.10802; w_old:
///   the weights `age` updates ago, C: running mean (0.99) of the mean absolute change of an
///   update.
/// - "dc-asgd": gradient + l gradient^2 (w - w_old), l = lambda / sqrt(ms + 1e-7), ms: running mean
///   (0.95) of gradient^2: DC-ASGD-a (Zheng et al., arXiv 1609.08326), a first-order step from
///   w_old to w with a diagonal Fisher information.
///
/// \param weights flat, padded with zeros; `count`: how many there are.
std::optional<Correction> make_correction(const CorrectionSpec& spec, const Delay& delay,
                                          const at::Tensor& weights, std::int64_t count);

}  // namespace millrace::stages
