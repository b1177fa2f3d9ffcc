#include "engine/plan/cut.h"

#include <algorithm>  // max
#include <limits>     // infinity

#include "engine/plan/reach.h"

namespace millrace::engine::plan {
namespace {

constexpr double kExact = 1e-12;  ///< relative: below it a difference is rounding

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
    peak = std::max(peak, model.memory(stage, behind).total());
  }
  return peak;
}

std::vector<Stage> any_cut(const CostModel& model, const Freedom& freedom) {
  return Reach(model, freedom, {}).within(std::numeric_limits<double>::infinity());
}

std::optional<Cut> best_cut(const CostModel& model, const Freedom& freedom,
                            const std::optional<Stage>& forbidden, double below) {
  Reach reach(model, freedom, forbidden);
  std::optional<Cut> best;
  double low = lower_bound(model, reach.widths());
  // Tries a period; a cut within it lowers the ceiling to what that cut really takes.
  const auto fits = [&](double period) {
    const std::vector<Stage> stages = reach.within(period);
    if (stages.empty()) return false;
    const Cut cut = weigh(model, stages);
    if (!best || cut.period_ms < best->period_ms) best = cut;
    return cut.period_ms <= period * (1 + kExact / 4);
  };
  const double ceiling = below > 0 ? below : std::numeric_limits<double>::infinity();
  if (low > ceiling || !fits(ceiling)) return {};
  // The best is mostly not far above the bound: close in from there.
  for (double step = 1.0 / 64; best->period_ms > low * (1 + step); step *= 4) {
    if (fits(low * (1 + step))) break;
    low *= 1 + step;
  }
  while (best->period_ms > low * (1 + kExact) && best->period_ms > 0) {
    const double middle = low + (best->period_ms - low) / 2;
    if (middle <= low || middle >= best->period_ms) break;
    if (!fits(middle)) low = middle;
  }
  return best;
}

std::optional<Cut> next_best_cut(const CostModel& model, const Freedom& freedom, const Cut& best) {
  std::optional<Cut> next;
  for (const Stage& stage : best.stages) {
    const double below = next ? next->period_ms * (1 - kExact) : 0.0;
    const std::optional<Cut> other = best_cut(model, freedom, stage, below);
    if (other && (!next || other->period_ms < next->period_ms)) next = other;
    if (next && next->period_ms <= best.period_ms * (1 + kExact)) break;
  }
  return next;
}

}  // namespace millrace::engine::plan
