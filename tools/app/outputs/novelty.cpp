#include "tools/app/outputs/novelty.h"

#include <cmath>

namespace millrace::app {
namespace {

constexpr double kNothing = 1e-12;     // stands for 0, which has no logarithm
constexpr double kLeastChange = 1e-3;  // of a picture: less is noise
constexpr double kSoon = 0.1;          // share of the newest frame in what is below the usual

}  // namespace

double Usual::compare(double value, const NoveltyOptions& options) {
  const std::int64_t number = seen_++;
  const bool settled = number >= options.settling;
  value = std::log(std::max(value, kNothing));
  const double spread = std::max(std::sqrt(variance_), options.least_deviation);
  const double deviation = number == 0 ? 0 : (value - mean_) / spread;
  // The memory starts short and grows, so that the high losses of the beginning are soon forgotten.
  const double share = 1.0 / double(std::clamp<std::int64_t>(number / 4, 1, options.memory));
  const double border = options.deviations * spread;
  const double step = settled ? std::clamp(value - mean_, -border, border) : value - mean_;
  mean_ += share * step;
  variance_ = (1 - share) * (variance_ + share * step * step);
  return deviation;
}

double Novelty::deviation_of(const Sight& now) {
  const double above = loss_.compare(now.loss, options_), most = 2 * options_.deviations;
  below_ += kSoon * (std::clamp(-above, -most, most) - below_);
  double deviation = std::max(above, below_);
  if (now.changed >= 0)
    deviation = std::max(deviation, changed_.compare(now.changed + kLeastChange, options_));
  return deviation;
}

bool Novelty::see(const Sight& now) {
  const auto relaxed = std::memory_order_relaxed;
  const bool settled = seen_++ >= options_.settling;
  if (!std::isfinite(now.loss)) {
    deviation_.store(options_.deviations, relaxed);
    mark(options_.deviations, now);  // the usual stays as it is
    return true;
  }
  const double deviation = deviation_of(now);
  const bool unexpected = settled && deviation > options_.deviations;
  deviation_.store(settled ? deviation : 0, relaxed);
  if (unexpected) {
    mark(deviation, now);
    return true;
  }
  unexpected_in_a_row_ = 0;
  if (in_event() && ++usual_in_a_row_ >= options_.calm) {
    in_event_.store(false, relaxed);
    rests_until_ = now.seconds + options_.cooldown;
  }
  return false;
}

void Novelty::mark(double deviation, const Sight& now) {
  const auto relaxed = std::memory_order_relaxed;
  usual_in_a_row_ = 0;
  marked_.store(marked() + 1, relaxed);
  if (unexpected_in_a_row_++ == 0) began_ = now.frame;
  if (!in_event()) {
    if (unexpected_in_a_row_ < options_.minimum || now.seconds < rests_until_) return;
    event_began_.store(began_, relaxed);
    event_peak_.store(deviation, relaxed);
    events_.store(events() + 1, relaxed);
    in_event_.store(true, relaxed);
  }
  event_peak_.store(std::max(event_peak(), deviation), relaxed);
}

}  // namespace millrace::app
