// The [correction] table in words: what is done about gradients that are old when they are applied.
// Needs no LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::stages {

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

}  // namespace millrace::stages
