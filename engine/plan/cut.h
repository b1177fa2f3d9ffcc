// The best contiguous cut of a network over the places of a machine, exactly.
#pragma once

#include <optional>
#include <vector>

#include "engine/plan/cost_model.h"

namespace millrace::engine::plan {

/// What a cut may do with places.
struct Freedom {
  bool replicas = false;  ///< a stage may take several, which take turns
  bool threads = false;   ///< a stage may take several, which work on one sample
  int stages = 0;         ///< exactly so many, each on one place; 0: as many as are best
  bool together = false;  ///< one stage, whose threads take all places

  bool operator==(const Freedom&) const = default;
};

struct Cut {
  std::vector<Stage> stages;
  double period_ms = 0;  ///< of the slowest stage: a pipeline takes a sample every so often
  int bottleneck = 0;    ///< the slowest stage
};

/// The cut with the least period, to 1e-12 of it, of all cuts of the network into stages of at
/// least one module on consecutive places, the last stage on the last place, that keep to the
/// machine's memory. Places may stay idle. Of equals one with the fewest places.
///
/// A stage's cost depends on its modules, its width and its place alone, so "modules [k, n) can run
/// on the last d places within a period B" is a dynamic programme over (d, k), with O(1) a state
/// and width: costs are sums over modules, hence for each k the ends that fit are an interval,
/// found with two pointers. B is then bisected between bounds. O(modules x places x widths) a step,
/// less by what bounds on the rest rule out.
///
/// Empty if nothing fits.
std::optional<Cut> best_cut(const CostModel& model, const Freedom& freedom);

/// The best cut that differs from `best`, which is best_cut()'s; empty if there is none.
std::optional<Cut> next_best_cut(const CostModel& model, const Freedom& freedom, const Cut& best);

/// Some cut that keeps to the machine's memory, whatever its period; empty if there is none.
std::vector<Stage> any_cut(const CostModel& model, const Freedom& freedom);

/// Period and bottleneck of stages that somebody else chose.
Cut weigh(const CostModel& model, const std::vector<Stage>& stages);

/// The largest total() of a stage's memory, of one of its devices.
double peak_memory(const CostModel& model, const std::vector<Stage>& stages);

}  // namespace millrace::engine::plan
