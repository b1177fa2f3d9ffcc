#pragma once

#include <map>
#include <vector>

namespace millrace::engine {

struct Balance {
  std::vector<int> cut, threads;
};

/// What a stage with an auxiliary head costs besides its modules: all stages but the last.
struct HeadCosts {
  double factor = 1;                         ///< of the modules' sum: how often they run
  std::map<int, std::vector<double>> heads;  ///< by threads, of a head after each module
};

/// balanced_cut() for stages that also share out threads. `costs`: of each module, by number of
/// threads. `choices`: for each stage, the numbers of threads it may take. All stages together take
/// at most `places` threads; of equal results the one with the fewest. `cut`: fixed; empty: to
/// choose. Throws std::invalid_argument if nothing fits.
Balance balanced(const std::map<int, std::vector<double>>& costs,
                 const std::vector<std::vector<int>>& choices, int places,
                 const std::vector<int>& cut = {}, const HeadCosts& heads = {});

/// Cuts `costs` (one per module, >= 0, any unit) into `stages` runs of at least one module with the
/// exact minimum of the largest sum, by dynamic programming in O(modules^2 * stages). Returns the
/// module indices where stages 1.. begin. Of equal cuts, takes that with the lightest later stages,
/// since those far from the loss wait longest for it. Throws std::invalid_argument unless 1 <=
/// stages <= modules.
std::vector<int> balanced_cut(const std::vector<double>& costs, int stages);

double bottleneck(const std::vector<double>& costs, const std::vector<int>& cut);

}  // namespace millrace::engine
