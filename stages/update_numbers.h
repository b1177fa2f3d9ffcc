// The constants of an update's kernels, for cores and for GPUs: NVRTC compiles this file, too.
#pragma once

#include "stages/optimizer_keys.h"

#ifdef __CUDACC_RTC__  // it has no standard library
namespace std {
using int64_t = long;
template <class T>
struct type_identity {
  using type = T;
};
}  // namespace std
#else
#include <cstdint>
#endif

namespace millrace::stages {

struct OptimizerInfo {
  const char* name;
  const char* keys[4] = {};   ///< of [optimizer], besides kind, lr and weight_decay
  const char* state[2] = {};  ///< its buffers; "momentum" only where momentum is not 0
  bool counts_steps = false;  ///< its state includes a number "steps"
  bool decoupled = false;     ///< weight decay applies to the weights, not to the gradient
};

/// A correction's formulas in the update's kernel (correction_formulas-inl.h).
enum class CorrectionRule { none, discrepancy, weight_prediction, gap_aware, dc_asgd };

struct CorrectionNumbers {
  CorrectionRule rule = CorrectionRule::none;
  std::int64_t updates = 0;  ///< age of gradients
  double decay = 0;          ///< discrepancy: share of a change left by an update
  double lambda = 0;         ///< dc-asgd
  double weights = 1;        ///< gap-aware: their number, which padding of the buffers is not in
};

/// Equal at every update.
struct UpdateNumbers {
  int optimizer = 0;  ///< its number in optimizer_formulas-inl.h
  int count = 1;      ///< gradients summed
  double share = 1;   ///< 1 / count
#define FIELD(name, ...) double name = 0;
  MILLRACE_OPTIMIZER_KEYS(FIELD)
#undef FIELD
  /// sgd with momentum: w -= lr (spike_momentum m + spike_gradient g).
  double spike_momentum = 1, spike_gradient = 0;
  bool decoupled = false, counts_steps = false;  ///< from OptimizerInfo
  CorrectionNumbers correction;
};

/// The optimizer's state in OptimizerInfo's order; null where there is none.
struct UpdateState {
  float* buffers[2] = {};
  float* steps = nullptr;  ///< one number
};

/// A correction's memory, in the order of correction.cpp; null where the rule has none.
struct CorrectionMemory {
  float* shift = nullptr;          ///< added to the weights by passes
  float* change = nullptr;         ///< running mean of the weights' change
  float* old = nullptr;            ///< ring of updates + 1 rows of weights
  std::int64_t* newest = nullptr;  ///< a row of `old`
  float* square = nullptr;         ///< running mean of squared gradients
  float* step = nullptr;           ///< one number: running mean of a weight's change
  bool* stepped = nullptr;         ///< whether `step` has a value
};

}  // namespace millrace::stages
