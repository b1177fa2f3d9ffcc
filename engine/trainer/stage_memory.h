#pragma once

#include <cstdint>
#include <vector>

namespace millrace::engine {

/// Bytes of one worker of a stage.
struct StageMemory {
  std::int64_t weights = 0;      ///< the newest version
  std::int64_t stashes = 0;      ///< older versions
  std::int64_t optimizer = 0;    ///< the optimizer's state
  std::int64_t gradients = 0;    ///< sums, until the update
  std::int64_t activations = 0;  ///< peak, between forward and backward
  std::int64_t cuts = 0;         ///< activations and gradients that it leaves for its neighbours
  std::int64_t scratch = 0;      ///< shared by a step program's operations; 0 on a GPU
  std::int64_t samples = 0;      ///< inputs of the first stage, targets and predictions of the last
  std::int64_t total() const {
    return weights + stashes + optimizer + gradients + activations + cuts + scratch + samples;
  }
};

/// The cut into stages with the same number of modules, for where none is given yet.
inline std::vector<int> even_cut(int modules, int stages) {
  std::vector<int> cut;
  for (int stage = 1; stage < stages; ++stage) cut.push_back(stage * modules / stages);
  return cut;
}

}  // namespace millrace::engine
