#include "engine/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "engine/plan/methods.h"
#include "engine/plan/unfit.h"

namespace millrace::engine::plan {
namespace {

/// Cuts without memory's limit, which many methods share: what they differ in is what they keep.
class Cutter {
 public:
  Cutter(const Profile& profile, const Machine& machine) : profile_(profile), machine_(machine) {}

  std::optional<Plan> plan(const Candidate& candidate) {
    Machine roomy = machine_;
    roomy.memory_bytes = 0;
    const CostModel model(profile_, roomy, candidate.method);
    std::optional<Cut> cut = roomy_cut(model, candidate);
    if (!cut) return {};
    if (const auto plan = fitting(model, *cut)) return plan;
    if (model.entry().virtual_stages) return {};  // a device's chunks add up
    const CostModel tight(profile_, machine_, candidate.method);
    cut = best_cut(tight, candidate.freedom);
    return cut ? fitting(tight, *cut) : std::nullopt;
  }

 private:
  std::optional<Cut> roomy_cut(const CostModel& model, const Candidate& candidate) {
    Candidate key = candidate;
    if (!model.entry().fits_minibatch) key.method.schedule = "";  // it alone rules stages out
    for (const auto& [known, cut] : cuts_) {
      if (known == key) return cut;
    }
    cuts_.push_back({key, best_cut(model, candidate.freedom)});
    return cuts_.back().second;
  }

  /// The plan, if it keeps to memory.
  std::optional<Plan> fitting(const CostModel& model, const Cut& cut) const {
    const Plan plan{model.method(), cut, outcome_of(profile_, model, cut)};
    const double room = machine_.memory_bytes * (1 + 1e-12);
    if (machine_.memory_bytes > 0 && plan.outcome.peak_bytes > room) return {};
    return plan;
  }

  const Profile& profile_;
  const Machine& machine_;
  std::vector<std::pair<Candidate, std::optional<Cut>>> cuts_;
};

std::int64_t oldest(const Plan& plan) {
  const auto& ages = plan.outcome.gradient_age;
  return *std::max_element(ages.begin(), ages.end());
}

/// What plans are ordered by. Times that differ by rounding alone are the same.
std::tuple<double, double, std::int64_t> rank(const Plan& plan) {
  const double ms = plan.outcome.sample_ms;
  const double unit = ms > 0 ? std::pow(10.0, std::floor(std::log10(ms)) - 9) : 1.0;
  return {std::round(ms / unit) * unit, plan.outcome.peak_bytes, oldest(plan)};
}

}  // namespace

Planned make_plan(const Profile& profile, const Request& request) {
  check_profile(profile);
  Cutter cutter(profile, request.machine);
  const std::vector<Candidate> all = candidates(profile, request);
  std::vector<std::pair<Plan, Freedom>> plans;
  for (const Candidate& candidate : all) {
    if (const auto plan = cutter.plan(candidate)) plans.push_back({*plan, candidate.freedom});
  }
  if (plans.empty()) throw PlanError(why_nothing_fits(profile, request, all));
  std::stable_sort(plans.begin(), plans.end(),
                   [](const auto& a, const auto& b) { return rank(a.first) < rank(b.first); });
  Planned planned;
  for (const auto& entry : plans) {
    const Plan& plan = entry.first;
    const bool known = std::any_of(planned.ranked.begin(), planned.ranked.end(),
                                   [&](const Plan& p) { return p.method == plan.method; });
    if (!known) planned.ranked.push_back(plan);
  }
  const auto& [best, freedom] = plans.front();
  Machine machine = request.machine;
  if (schedule_entry(best.method.schedule).virtual_stages) machine.memory_bytes = 0;
  planned.next_cut = next_best_cut(CostModel(profile, machine, best.method), freedom, best.cut);
  return planned;
}

}  // namespace millrace::engine::plan
