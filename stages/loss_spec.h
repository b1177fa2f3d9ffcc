// Which loss a prediction is held against its target by.
#pragma once

#include <string>
#include <vector>

namespace millrace::stages {

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
