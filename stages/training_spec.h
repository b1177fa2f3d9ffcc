// How a network is trained, in words: the [optimizer] and [correction] tables of a config, and its
// task.loss. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::stages {

/// The [optimizer] table. Names, defaults and formulas are torch.optim's.
struct OptimizerSpec {
  std::string kind = "sgd";  ///< sgd | rmsprop | adam | adamw
  double lr = 0.01;
  double momentum = 0.0;      ///< sgd, rmsprop
  double weight_decay = 0.0;  ///< decoupled in adamw, added to the gradient elsewhere
  double beta1 = 0.9;         ///< adam, adamw
  double beta2 = 0.999;       ///< adam, adamw
  double alpha = 0.99;        ///< rmsprop
  double eps = 1e-8;          ///< rmsprop, adam, adamw
  /// Above 0: the decay of the running mean on which gradients are projected: orthogonalize().
  double orthogonal = 0.0;
  // How lr changes, update by update; as torch.optim.lr_scheduler's StepLR, CosineAnnealingLR and,
  // for the first `warmup` updates, LinearLR.
  std::string schedule = "constant";  ///< constant | step | cosine
  std::int64_t step_size = 1000;      ///< step: updates
  double gamma = 0.1;                 ///< step
  std::int64_t T_max = 10000;         ///< cosine: updates
  double eta_min = 0.0;               ///< cosine
  std::int64_t warmup = 0;            ///< updates
  double start_factor = 1.0 / 3;      ///< warmup
  /// sgd with momentum: updates old gradients, which spike compensation (Kosson et al., arXiv
  /// 2003.11666, SC_D) puts in at once: w -= lr (a v + b g), a = momentum^D, b =
  /// (1-a)/(1-momentum).
  std::int64_t spike_delay = 0;
};

/// Every value OptimizerSpec::kind can take.
const std::vector<std::string>& optimizer_names();

/// The [correction] table.
struct CorrectionSpec {
  std::string kind = "none";  ///< see correction_names()
  std::int64_t anneal = 300;  ///< pipemare: updates until the full rate is reached
  double lambda = 2.0;        ///< dc-asgd: strength
  double decay = 0.5;  ///< discrepancy: what is left of a change of the weights after a delay
  int kernel = 5;      ///< local: side of the auxiliary heads' kernel
  double rate = 3.0;   ///< local: the heads' rate over the stage's
};

/// How old a stage's gradients are when it applies them.
struct Delay {
  std::int64_t frames = 0;
  std::int64_t updates = 0;
  /// Whether they meet the activations of a later sample (partime), rather than their own.
  bool on_later_sample = false;
};

/// Every value CorrectionSpec::kind can take.
const std::vector<std::string>& correction_names();

/// One summand: a table of `task.loss`.
struct LossTerm {
  std::string kind = "mse";    ///< see loss_types()
  double weight = 1;           ///< what it is multiplied by
  double label_smoothing = 0;  ///< cross-entropy: share that is spread over all classes
  std::vector<int> channels;   ///< first and count: what it is of; empty: all
  bool operator==(const LossTerm&) const = default;
};

/// A sum of losses; by default and by a name alone, one.
struct LossSpec {
  std::vector<LossTerm> terms;
  LossSpec() noexcept : terms(1) {}
  LossSpec(const char* kind) : LossSpec(std::string(kind)) {}
  LossSpec(std::string kind) : LossSpec() { terms[0].kind = std::move(kind); }
  /// For people: "mse", "mse + 0.5 ssim".
  std::string text() const;
};

}  // namespace millrace::stages
