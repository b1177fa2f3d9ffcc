#pragma once

#include <map>
#include <vector>

namespace millrace::engine {

/// A cut, and the number of threads of each stage.
struct Balance {
  std::vector<int> cut, threads;
};

/// The balanced_cut() for stages whose work threads share. `costs`: by number of threads, of
/// each module. `choices`: of each stage, numbers of threads in `costs`. All stages together take
/// at most `places` threads; of equals the fewest. `cut`: fixed; empty: to choose. Throws
/// std::invalid_argument if nothing fits.
Balance balanced(const std::map<int, std::vector<double>>& costs,
                 const std::vector<std::vector<int>>& choices, int places,
                 const std::vector<int>& cut = {});

/// Cuts `costs` (one per module, >= 0, any unit) into `stages` runs of at least one module with the
/// exact minimum of the largest sum, by dynamic programming in O(modules^2 * stages). Returns the
/// module indices where stages 1.. begin. Of equal cuts, takes that with the lightest later stages:
/// what is far from the loss waits longest for it. Throws std::invalid_argument unless 1 <= stages
/// <= modules.
std::vector<int> balanced_cut(const std::vector<double>& costs, int stages);

/// The largest stage sum of `cut`.
double bottleneck(const std::vector<double>& costs, const std::vector<int>& cut);

}  // namespace millrace::engine
