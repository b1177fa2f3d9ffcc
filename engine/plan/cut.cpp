#include "engine/plan/cut.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>

namespace millrace::engine::plan {
namespace {

constexpr double kExact = 1e-12;  ///< relative: smaller differences are rounding
constexpr double kNear = 1e-3;    ///< relative: few cuts lie between bounds this close

/// A stage without modules for each width that is allowed, narrowest first.
std::vector<Stage> widths_of(const CostModel& model, const Freedom& freedom) {
  std::vector<Stage> widths;
  if (freedom.together) {
    Stage fastest;
    for (int threads = 2; threads <= model.places(); ++threads)
      if (model.speedup(threads) > model.speedup(fastest.threads)) fastest.threads = threads;
    if (fastest.threads > 1) widths.push_back(fastest);
    return widths;
  }
  const int most = freedom.stages > 0 ? 1 : model.places();
  for (int places = 1; places <= most; ++places) {
    for (int threads = 1; threads <= places; ++threads) {
      const int replicas = places / threads;
      if (places % threads != 0 || model.speedup(threads) <= 0) continue;
      if ((threads > 1 && !freedom.threads) || (replicas > 1 && !freedom.replicas)) continue;
      widths.push_back({.replicas = replicas, .threads = threads});
    }
  }
  return widths;
}

/// The dynamic program behind best_cut(): does a network fit a machine within a period? Reuses its
/// tables for each period. Not thread-safe.
class CutSearch {
 public:
  CutSearch(const CostModel& model, const Freedom& freedom)
      : model_(model),
        modules_(model.modules()),
        places_(freedom.stages > 0 ? freedom.stages : model.places()),
        exact_(freedom.stages > 0),
        widths_(places_ <= model.places() ? widths_of(model, freedom) : std::vector<Stage>{}) {
    if (modules_ > std::numeric_limits<std::int16_t>::max())
      throw std::invalid_argument("more than 32767 modules can't be planned");
    if (freedom.together && !widths_.empty()) places_ = widths_.front().places();
    for (const Stage& width : widths_)
      efficiency_ = std::max(efficiency_, model.speedup(width.threads) / width.threads);
    memory_limits_.assign(widths_.size(), std::vector<Limits>(places_ + 1));
  }

  /// A cut with all stages within `period`, on the fewest places; empty: there is none.
  std::vector<Stage> within(double period) {
    bound_states(period);
    time_limits_.assign(widths_.size(), {});
    origin_.assign(places_ + 1, std::vector<Origin>(modules_ + 1));
    origin_[0][modules_].width = 0;
    for (int tail = 1; tail <= places_ && !widths_.empty(); ++tail) {
      for (int width = 0; width < int(widths_.size()); ++width) {
        if (widths_[width].places() <= tail) extend(width, tail, period);
      }
      if (origin_[tail][0].width >= 0) return trace(tail);
    }
    return {};
  }

  /// A period that no cut can beat: the slowest module's, or all work over all places.
  double lower_bound() const {
    double bound = model_.compute_sums().back() / (model_.places() * efficiency_);
    for (int i = 0; i < modules_; ++i) {
      double best = std::numeric_limits<double>::infinity();
      for (const Stage& width : widths_)
        best = std::min(best, model_.work(i, i + 1, width.replicas, width.threads));
      bound = std::max(bound, best);
    }
    return bound;
  }

 private:
  struct Origin {
    std::int16_t width = -1;  ///< of the stage that begins here; -1: unreachable
    std::int16_t end = 0;     ///< where the stage ends
  };
  /// [first module of a stage]: the farthest end that fits.
  using Limits = std::vector<std::int16_t>;

  Stage stage_at(int width, int tail, int begin, int end) const {
    Stage stage = widths_[width];
    stage.begin = begin;
    stage.end = end;
    stage.place = model_.places() - tail;
    return stage;
  }
  const Limits& memory_limits(int width, int tail) {
    Limits& limits = memory_limits_[width][tail];
    if (!limits.empty()) return limits;
    const double memory = model_.machine().memory_bytes;
    limits.assign(modules_ + 1, std::int16_t(modules_));
    if (memory <= 0) return limits;
    const Stage stage = stage_at(width, tail, 0, modules_);
    const StageMemory kept = model_.memory(stage, places_);
    const std::vector<double> sums = model_.memory_sums(kept.versions, kept.whole);
    for (int begin = 0; begin < modules_; ++begin) {
      const double free = memory - model_.input_bytes(begin, kept.samples) -
                          (begin == 0 ? model_.machine().replay_bytes : 0);
      const auto over =
          std::upper_bound(sums.begin() + begin + 1, sums.end(), free,
                           [&](double room, double sum) { return room < sum - sums[begin]; });
      limits[begin] = std::int16_t(over - sums.begin() - 1);
    }
    return limits;
  }
  /// The farthest end that work and all-reduce allow: two pointers along ascending sums.
  const Limits& time_limits(int width, const Link& agree, double period) {
    for (const TimeLimits& known : time_limits_[width]) {
      if (known.agree == &agree) return known.limits;
    }
    const Stage& shape = widths_[width];
    const int group = model_.group(shape.replicas);
    const int members = shape.replicas * model_.method().copies;
    const double per_byte =
        (all_reduce_ms(agree, 1e6, members) - all_reduce_ms(agree, 0, members)) / 1e6 / group;
    const double fixed = all_reduce_ms(agree, 0, members) / group;
    Limits limits(modules_ + 1, std::int16_t(modules_));
    for (int begin = 0, end = 0; begin < modules_; ++begin) {
      const auto late = [&](int to) {
        const double work = model_.work(begin, to, shape.replicas, shape.threads);
        const double agreeing = fixed + per_byte * model_.weight_bytes(begin, to);
        return model_.machine().overlap == Overlap::all ? std::max(work, agreeing) > period
                                                        : work + agreeing > period;
      };
      end = std::max(end, begin);
      while (end < modules_ && !late(end + 1)) ++end;
      limits[begin] = std::int16_t(end);
    }
    time_limits_[width].push_back({&agree, std::move(limits)});
    return time_limits_[width].back().limits;
  }
  /// Bounds the modules where a tail of d places can begin within the period: the other places must
  /// manage the work before them, and the d places the rest.
  void bound_states(double period) {
    const auto& compute = model_.compute_sums();
    const double most = period * efficiency_ * (1 + 1e-9);  // rounding must not rule anything out
    first_.assign(places_ + 1, 0);
    last_.assign(places_ + 1, modules_);
    if (!std::isfinite(period)) return;
    for (int tail = 0; tail <= places_; ++tail) {
      const auto over = std::upper_bound(compute.begin(), compute.end(), (places_ - tail) * most);
      last_[tail] = int(over - compute.begin()) - 1;
      const auto from =
          std::lower_bound(compute.begin(), compute.end(), compute.back() - tail * most);
      first_[tail] = std::min(modules_, int(from - compute.begin()));
    }
  }
  /// Adds the stages of `width` that begin a tail. The best end of a stage, within the limits, has
  /// the least sum of work up to it and message there. Where messages overlap with work, only those
  /// longer than the period matter, and of the other ends the nearest is as good as any. Candidates
  /// are the ends, farthest first, whose sum is below every nearer one's.
  void extend(int width, int tail, double period) {
    const Stage whole = stage_at(width, tail, 0, modules_);
    if (!model_.allows(whole)) return;
    const Limits& by_time = time_limits(width, model_.agree_link(whole), period);
    const Limits& by_memory = memory_limits(width, tail);
    const bool adds = model_.machine().overlap == Overlap::none;
    const double room = period * model_.turns(widths_[width].replicas);
    const auto period_of = [&](const Stage& stage) {
      return model_.time(stage).period(Overlap::none);
    };
    const int behind = tail - widths_[width].places();
    std::vector<std::pair<int, double>> ends;
    for (int begin = modules_ - 1; begin >= first_[tail]; --begin) {
      const Stage nearest = stage_at(width, tail, begin, begin + 1);
      if (is_end(behind, begin + 1) && (adds || model_.leave_ms(nearest) <= room)) {
        const double sum = adds ? period_of(stage_at(width, tail, 0, begin + 1)) : 0;
        while (!ends.empty() && ends.back().second >= sum) ends.pop_back();
        ends.push_back({begin + 1, sum});
      }
      if (begin > last_[tail] || origin_[tail][begin].width >= 0 || !may_begin(tail, begin))
        continue;
      const int limit = std::min(by_time[begin], by_memory[begin]);
      const auto best = std::partition_point(ends.begin(), ends.end(),
                                             [&](const auto& end) { return end.first > limit; });
      if (best == ends.end()) continue;
      const Stage stage = stage_at(width, tail, begin, best->first);
      if (adds ? period_of(stage) > period : model_.arrive_ms(stage) > room) continue;
      origin_[tail][begin] = {std::int16_t(width), std::int16_t(best->first)};
    }
  }
  bool may_begin(int tail, int begin) const {
    if (begin == 0) return !exact_ || tail == places_;
    return tail < places_;
  }
  bool is_end(int tail, int end) const {
    return end >= first_[tail] && end <= last_[tail] && origin_[tail][end].width >= 0;
  }
  std::vector<Stage> trace(int tail) const {
    std::vector<Stage> stages;
    for (int begin = 0; begin < modules_;) {
      const auto [width, end] = origin_[tail][begin];
      stages.push_back(stage_at(width, tail, begin, end));
      tail -= widths_[width].places();
      begin = end;
    }
    return stages;
  }

  const CostModel& model_;
  int modules_, places_;
  bool exact_;  ///< all places must be taken
  std::vector<Stage> widths_;
  double efficiency_ = 0;                           ///< the most work a place does per unit of time
  std::vector<std::vector<Origin>> origin_;         ///< [places of the tail][its first module]
  std::vector<int> first_, last_;                   ///< [places of the tail]: where it may begin
  std::vector<std::vector<Limits>> memory_limits_;  ///< [width][places of the tail]
  struct TimeLimits {
    const Link* agree;
    Limits limits;
  };
  std::vector<std::vector<TimeLimits>> time_limits_;  ///< [width], for the current period
};

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
  double low = search.lower_bound();
  std::optional<Cut> best;
  // A cut within the period lowers the ceiling to its own period.
  const auto fits = [&](double period) {
    const std::vector<Stage> stages = search.within(period);
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
    // Few cuts are left between such close bounds: is any below the best?
    const double below = best->period_ms * (1 - kExact);
    if (best->period_ms < low * (1 + kNear) && !fits(below)) break;
  }
  return best;
}

}  // namespace millrace::engine::plan
