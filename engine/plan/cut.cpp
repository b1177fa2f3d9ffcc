#include "engine/plan/cut.h"

#include <algorithm>
#include <limits>

#include "engine/plan/reach.h"

namespace millrace::engine::plan {
namespace {

constexpr double kExact = 1e-12;  ///< relative: below it a difference is rounding
constexpr double kNear = 1e-3;    ///< relative

/// A period that no cut can beat: every module is somewhere, and all places together do all work.
double lower_bound(const CostModel& model, const std::vector<Width>& widths) {
  const auto &compute = model.compute_sums(), &update = model.update_sums();
  double efficiency = 0;
  for (const Width& width : widths) {
    efficiency = std::max(efficiency, model.speedup(width.threads) / width.threads);
  }
  double bound = compute.back() / (model.places() * efficiency);
  for (int i = 0; i < model.modules(); ++i) {
    double best = std::numeric_limits<double>::infinity();
    for (const auto& [replicas, threads] : widths) {
      const double speed = model.speedup(threads);
      best = std::min(best, (compute[i + 1] - compute[i]) / (replicas * speed) +
                                (update[i + 1] - update[i]) / (model.group(replicas) * speed));
    }
    bound = std::max(bound, best);
  }
  return bound;
}

/// The cut of the least period, of those that `within` finds: it gives one within a period, or
/// none. No period is below `low`.
template <class Within>
std::optional<Cut> least(const CostModel& model, double low, const Within& within) {
  std::optional<Cut> best;
  // Tries a period; a cut within it lowers the ceiling to what that cut really takes.
  const auto fits = [&](double period) {
    const std::vector<Stage> stages = within(period);
    if (stages.empty()) return false;
    const Cut cut = weigh(model, stages);
    if (!best || cut.period_ms < best->period_ms) best = cut;
    return cut.period_ms <= period * (1 + kExact / 4);
  };
  if (fits(low) || !fits(std::numeric_limits<double>::infinity())) return best;
  // The best is mostly not far above the bound: close in from there.
  for (double step = 1.0 / 256; low > 0 && best->period_ms > low * (1 + step); step *= 4) {
    if (fits(low * (1 + step))) break;
    low *= 1 + step;
  }
  while (best->period_ms > low * (1 + kExact)) {
    const double middle = low + (best->period_ms - low) / 2;
    if (middle <= low || middle >= best->period_ms) break;
    if (!fits(middle)) low = middle;
    // Few cuts are left so near to each other: is there one at all below the best?
    const double below = best->period_ms * (1 - kExact);
    if (best->period_ms < low * (1 + kNear) && !fits(below)) break;
  }
  return best;
}

}  // namespace

Cut weigh(const CostModel& model, const std::vector<Stage>& stages) {
  Cut cut{stages};
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const double period = model.time(stages[i]).period(model.machine().overlap);
    if (i > 0 && period <= cut.period_ms) continue;
    cut.period_ms = period;
    cut.bottleneck = int(i);
  }
  return cut;
}

double peak_memory(const CostModel& model, const std::vector<Stage>& stages) {
  double peak = 0;
  for (const Stage& stage : stages) {
    const int behind = model.places() - stage.place - stage.places();
    peak = std::max(peak, model.memory(stage, behind, int(stages.size())).total());
  }
  return peak;
}

std::vector<Stage> any_cut(const CostModel& model, const Freedom& freedom) {
  return Reach(model, freedom).within(std::numeric_limits<double>::infinity());
}

std::optional<Cut> best_cut(const CostModel& model, const Freedom& freedom) {
  Reach reach(model, freedom);
  return least(model, lower_bound(model, reach.widths()),
               [&](double period) { return reach.within(period); });
}

std::optional<Cut> next_best_cut(const CostModel& model, const Freedom& freedom, const Cut& best) {
  Reach reach(model, freedom);
  return least(model, best.period_ms * (1 + kExact / 4),
               [&](double period) { return reach.within_other_than(best.stages, period); });
}

}  // namespace millrace::engine::plan
