// What is known of a stage besides its weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::engine {

/// Bytes that one worker of a stage holds.
struct StageMemory {
  std::int64_t weights = 0;      ///< the newest version
  std::int64_t stashes = 0;      ///< older versions
  std::int64_t optimizer = 0;    ///< its state
  std::int64_t gradients = 0;    ///< sums, until the update
  std::int64_t activations = 0;  ///< peak of what is kept between forward and backward
  std::int64_t total() const { return weights + stashes + optimizer + gradients + activations; }
};

/// Channels of a stage that a ReLU follows, and how many of them it has silenced.
struct DeadUnits {
  int dead = 0, units = 0;
};

/// How a stage's step is run.
struct StageCapture {
  bool recorded = false;
  std::vector<std::string> left;  ///< left_to_libtorch() of its step program
};

struct StageFacts {
  StageMemory memory;
  DeadUnits dead_units;
  StageCapture capture;
};

}  // namespace millrace::engine
