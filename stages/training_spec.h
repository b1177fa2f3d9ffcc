// How a network is trained: a config's [optimizer], [correction] and task.loss. Needs no LibTorch.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "stages/optimizer_keys.h"

namespace millrace::stages {

/// The [optimizer] table. Names, defaults and formulas are torch.optim's.
struct OptimizerSpec {
  std::string kind = "sgd";  ///< sgd | rmsprop | adam | adamw
#define FIELD(name, fallback, least, most, meaning) double name = fallback;
  MILLRACE_OPTIMIZER_KEYS(FIELD)
#undef FIELD
  /// Above 0: decay of the mean that gradients are projected on; see Optimizer::orthogonalize().
  double orthogonal = 0.0;
  // Schedule of lr by updates: torch.optim.lr_scheduler's StepLR and CosineAnnealingLR, after
  // LinearLR for the first `warmup` updates.
  std::string schedule = "constant";  ///< constant | step | cosine
  std::int64_t step_size = 1000;      ///< step: updates
  double gamma = 0.1;                 ///< step
  std::int64_t T_max = 10000;         ///< cosine: updates
  double eta_min = 0.0;               ///< cosine
  std::int64_t warmup = 0;            ///< updates
  double start_factor = 1.0 / 3;      ///< warmup
  /// sgd with momentum: age in updates of gradients, for spike compensation (Kosson et al., arXiv
  /// 2003.11666, SC_D): w -= lr (a v + b g), a = momentum^D, b = (1-a)/(1-momentum).
  std::int64_t spike_delay = 0;
};

/// Every value of OptimizerSpec::kind.
std::vector<std::string> optimizer_names();

/// The age of a stage's gradients when it applies them.
struct Delay {
  std::int64_t frames = 0;
  std::int64_t updates = 0;
  /// Whether they meet a later sample's activations (partime), rather than their own.
  bool on_later_sample = false;
};

/// The [correction] table.
struct CorrectionSpec {
  std::string kind = "none";  ///< see correction_names()
  std::int64_t anneal = 300;  ///< pipemare: updates until the full rate is reached
  double lambda = 2.0;        ///< dc-asgd: strength
  double decay = 0.5;         ///< discrepancy: factor on a change of the weights after a delay
  int kernel = 5;             ///< local, deep-supervision: size of the auxiliary heads' kernel
  double rate = 3.0;          ///< local, deep-supervision: the heads' rate over the stage's
  /// deep-supervision: weight of downstream's gradient relative to the head's, over sqrt(1 + age)
  double weight = 0.87;
  double step = 1.0;  ///< deep-supervision: factor on the learning rate
  /// deep-supervision: form of what stages recompute from: uint8, copies as in Quantized (unless a
  /// stage is on a GPU), or float32, the inputs themselves
  std::string inputs = "uint8";

  double downstream_weight(const Delay& delay) const {
    return weight / std::sqrt(1 + double(delay.frames));
  }
};

/// Every value of CorrectionSpec::kind.
std::vector<std::string> correction_names();

/// The learning rate before its schedule.
inline double first_rate(const OptimizerSpec& optimizer, const CorrectionSpec& correction) {
  return correction.kind == "deep-supervision" ? optimizer.lr * correction.step : optimizer.lr;
}

/// One summand: a table of `task.loss`.
struct LossTerm {
  std::string kind = "mse";  ///< see loss_types()
  double weight = 1;
  double label_smoothing = 0;  ///< cross-entropy: share spread over all classes
  std::vector<int> channels;   ///< first and count; empty: all
  bool operator==(const LossTerm&) const = default;
};

/// A sum of losses; by default, or from a name, a single one.
struct LossSpec {
  std::vector<LossTerm> terms;
  LossSpec() noexcept : terms(1) {}
  LossSpec(const char* kind) : LossSpec(std::string(kind)) {}
  LossSpec(std::string kind) : LossSpec() { terms[0].kind = std::move(kind); }
  /// For people: "mse", "mse + 0.5 ssim".
  std::string text() const;
};

}  // namespace millrace::stages
