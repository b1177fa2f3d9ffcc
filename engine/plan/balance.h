// The cut of a network whose slowest stage is fastest, from measured times alone.
#pragma once

#include <map>
#include <vector>

namespace millrace::engine {

/// A cut, and how many threads each stage takes.
struct Balance {
  std::vector<int> cut, threads;
};

/// As balanced_cut(), with threads that share a stage's work. `costs`: by number of threads, of
/// each module. `choices`: for each stage the numbers of threads to choose from, all in `costs`.
/// All stages together take at most `places` threads; of equals the fewest. `cut`: to keep; empty:
/// to choose. Throws std::invalid_argument if nothing fits.
Balance balanced(const std::map<int, std::vector<double>>& costs,
                 const std::vector<std::vector<int>>& choices, int places,
                 const std::vector<int>& cut = {});

/// Cuts `costs` (one a module, >= 0, any unit) into `stages` runs of at least one module with the
/// exact minimum of the largest sum, by dynamic programming in O(modules^2 * stages). Returns the
/// module indices where stages 1.. begin. Of equal cuts it takes the one with the lightest later
/// stages: what is far from the loss waits longest for it. Throws std::invalid_argument unless 1 <=
/// stages
/// <= modules.
std::vector<int> balanced_cut(const std::vector<double>& costs, int stages);

/// The largest stage sum of `cut`.
double bottleneck(const std::vector<double>& costs, const std::vector<int>& cut);

}  // namespace millrace::engine
