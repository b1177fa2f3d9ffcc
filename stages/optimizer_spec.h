// The [optimizer] table in words. Needs no LibTorch.
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
  /// Above 0: the decay of the running mean on which gradients are projected (orthogonal.h).
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

}  // namespace millrace::stages
