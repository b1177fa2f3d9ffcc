#include "engine/plan/cut.h"

#include <algorithm>
#include <limits>

#include "engine/plan/cut_search.h"

namespace millrace::engine::plan {
namespace {

constexpr double kExact = 1e-12;  ///< relative: a smaller difference is rounding
constexpr double kNear = 1e-3;    ///< relative

/// A period that no cut can beat: the slowest module's, or all work over all places.
double lower_bound(const CostModel& model, const std::vector<Width>& widths) {
  double efficiency = 0;
  for (const Width& width : widths) {
    efficiency = std::max(efficiency, model.speedup(width.threads) / width.threads);
  }
  double bound = model.compute_sums().back() / (model.places() * efficiency);
  for (int i = 0; i < model.modules(); ++i) {
    double best = std::numeric_limits<double>::infinity();
    for (const auto& [replicas, threads] : widths)
      best = std::min(best, model.work(i, i + 1, replicas, threads));
    bound = std::max(bound, best);
  }
  return bound;
}

/// The cut of the least period >= `low`. `within(period)` finds some cut within a period, or none.
template <class Within>
std::optional<Cut> least(const CostModel& model, double low, const Within& within) {
  std::optional<Cut> best;
  // A cut within the period lowers the ceiling to what that cut really takes.
  const auto fits = [&](double period) {
    const std::vector<Stage> stages = within(period);
    if (stages.empty()) return false;
    const Cut cut = weigh(model, stages);
    if (!best || cut.period_ms < best->period_ms) best = cut;
    return cut.period_ms <= period * (1 + kExact / 4);
  };
  if (fits(low) || !fits(std::numeric_limits<double>::infinity())) return best;
  // The optimum is usually not far above the bound: close in from there.
  for (double step = 1.0 / 256; low > 0 && best->period_ms > low * (1 + step); step *= 4) {
    if (fits(low * (1 + step))) break;
    low *= 1 + step;
  }
  while (best->period_ms > low * (1 + kExact)) {
    const double middle = low + (best->period_ms - low) / 2;
    if (middle <= low || middle >= best->period_ms) break;
    if (!fits(middle)) low = middle;
    // So close together few cuts are left: is any below the best?
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
  for (const Stage& stage : stages)
    peak = std::max(peak, model.memory(stage, int(stages.size())).total());
  return peak;
}

std::vector<Stage> any_cut(const CostModel& model, const Freedom& freedom) {
  return CutSearch(model, freedom).within(std::numeric_limits<double>::infinity());
}

std::optional<Cut> best_cut(const CostModel& model, const Freedom& freedom) {
  CutSearch search(model, freedom);
  return least(model, lower_bound(model, search.widths()),
               [&](double period) { return search.within(period); });
}

std::optional<Cut> next_best_cut(const CostModel& model, const Freedom& freedom, const Cut& best) {
  CutSearch search(model, freedom);
  return least(model, best.period_ms * (1 + kExact / 4),
               [&](double period) { return search.within_other_than(best.stages, period); });
}

}  // namespace millrace::engine::plan
