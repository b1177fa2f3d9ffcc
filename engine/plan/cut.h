#pragma once

#include <optional>
#include <vector>

#include "engine/plan/cost_model.h"

namespace millrace::engine::plan {

struct Freedom {
  bool replicas = false;  ///< a stage may take several places, which take samples in turn
  bool threads = false;   ///< a stage may take several places, which share a sample's work
  int stages = 0;         ///< number of stages, each on one place; 0: the best number
  bool together = false;  ///< one stage, on as many places as speed up a sample most

  bool operator==(const Freedom&) const = default;
};

struct Cut {
  std::vector<Stage> stages;
  double period_ms = 0;  ///< of the slowest stage: time between samples
  int bottleneck = 0;    ///< the slowest stage
};

/// The cut with the least period, exact to 1e-12, among all cuts into stages of at least one module
/// on consecutive places that fit the machine's memory. The last stage is on the last place; places
/// may stay idle. Of equal cuts, one with the fewest places. Empty: nothing fits.
///
/// A stage's cost depends only on its modules, width and place. So "modules [k, n) can run on the
/// last d places within period B" is a dynamic program over (d, k), O(1) per state and width: costs
/// are sums over modules, so for each k the ends that fit are an interval, found with two pointers.
/// B is bisected. A step takes O(modules x places x widths), less what bounds rule out.
std::optional<Cut> best_cut(const CostModel& model, const Freedom& freedom);

/// A cut that fits the machine's memory, of any period; empty: there is none.
std::vector<Stage> any_cut(const CostModel& model, const Freedom& freedom);

Cut weigh(const CostModel& model, const std::vector<Stage>& stages);

double peak_memory(const CostModel& model, const std::vector<Stage>& stages);

}  // namespace millrace::engine::plan
