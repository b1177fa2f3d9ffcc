// What is done about gradients that are old when they are applied.
#pragma once

#include <cstdint>  // ages
#include <string>   // names
#include <vector>   // names

namespace millrace::engine {

/// Every value [correction] kind can take.
/// "none": the schedule's bare rule. "inverse-age": each stage's rate divided by
/// (1 + its gradient age), after the staleness-aware rate of Zhang et al., arXiv 1511.05950.
const std::vector<std::string>& correction_names();

/// What a stage's learning rate is multiplied by when its gradients are `age` frames old.
/// Throws std::invalid_argument for an unknown name.
double rate_factor(const std::string& correction, std::int64_t age);

}  // namespace millrace::engine
