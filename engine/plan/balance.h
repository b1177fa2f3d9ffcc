// Where to cut a network so that the slowest stage is as fast as can be.
#pragma once

#include <vector>

namespace millrace::engine {

/// Cuts `costs` (one a module, >= 0, any unit) into `stages` runs of at least one module with the
/// exact minimum of the largest sum, by dynamic programming in O(modules^2 * stages). Returns the
/// module indices where stages 1.. begin. Of equal cuts the one whose later stages are lightest:
/// what is far from the loss waits longest for it. Throws std::invalid_argument unless 1 <= stages
/// <= modules.
std::vector<int> balanced_cut(const std::vector<double>& costs, int stages);

/// The largest stage sum of `cut`.
double bottleneck(const std::vector<double>& costs, const std::vector<int>& cut);

}  // namespace millrace::engine
