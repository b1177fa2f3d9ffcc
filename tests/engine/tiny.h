#pragma once

#include <utility>
#include <vector>

#include "tests/engine/sample_feed.h"

namespace millrace::engine {

const stages::ImageShape kTiny{3, 8, 8};

/// Six modules, the first, third and fifth with weights.
inline TrainerOptions tiny(int stages, std::vector<int> cut, const std::string& optimizer = "sgd") {
  TrainerOptions options;
  options.network = stages::build_network({.layers = 3, .features = 4, .kernel = 3}, kTiny);
  options.sample = kTiny;
  options.stages = stages;
  options.cut = std::move(cut);
  options.optimizer.kind = optimizer;
  return options;
}

}  // namespace millrace::engine
