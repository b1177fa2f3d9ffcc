// Where to cut a network so that the slowest stage is as fast as can be.
#pragma once

#include <map>
#include <vector>

namespace millrace::engine {

/// A cut, and how many threads each stage takes.
struct Balance {
  std::vector<int> cut, threads;
};

/// As balanced_cut(), where threads share a stage's work. `costs`: by a count of threads, of each
/// module. `choices`: for each stage the counts to choose from, with costs each. All stages
/// together take at most `places` threads; of equal ones the least. `cut`: to be kept; empty: to be
/// chosen. Throws std::invalid_argument if nothing fits.
Balance balanced(const std::map<int, std::vector<double>>& costs,
                 const std::vector<std::vector<int>>& choices, int places,
                 const std::vector<int>& cut = {});

/// Cuts `costs` (one a module, >= 0, any unit) into `stages` runs of at least one module with the
/// exact minimum of the largest sum, by dynamic programming in O(modules^2 * stages). Returns the
/// module indices where stages 1.. begin. Of equal cuts the one whose later stages are lightest:
/// what is far from the loss waits longest for it. Throws std::invalid_argument unless 1 <= stages
/// <= modules.
std::vector<int> balanced_cut(const std::vector<double>& costs, int stages);

/// The largest stage sum of `cut`.
double bottleneck(const std::vector<double>& costs, const std::vector<int>& cut);

}  // namespace millrace::engine
