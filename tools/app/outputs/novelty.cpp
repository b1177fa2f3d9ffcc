#include "tools/app/outputs/novelty.h"

#include <algorithm>
#include <cmath>

namespace millrace::app {
namespace {

constexpr double kNoLoss = 1e-12;  // stands for 0, which has no logarithm

}  // namespace

bool Novelty::see(float loss) {
  const auto relaxed = std::memory_order_relaxed;
  const std::int64_t number = seen_++;
  if (!std::isfinite(loss)) {
    deviation_.store(options_.deviations, relaxed);
    mark(options_.deviations);  // the usual stays as it is
    return true;
  }
  const double value = std::log(std::max(double(loss), kNoLoss));
  const double spread = std::max(std::sqrt(variance_), options_.least_deviation);
  const double deviation = number == 0 ? 0 : (value - mean_) / spread;
  const bool settled = number >= options_.settling;
  const bool unexpected = settled && deviation > options_.deviations;
  deviation_.store(settled ? deviation : 0, relaxed);
  if (unexpected) {
    mark(deviation);
  } else if (in_event() && ++usual_in_a_row_ >= options_.calm) {
    in_event_.store(false, relaxed);
  }
  // The memory starts short and grows, so that the high losses of the beginning are soon forgotten.
  const double share = 1.0 / double(std::clamp<std::int64_t>(number / 4, 1, options_.memory));
  // Outliers are clamped.
  const double border = options_.deviations * spread;
  const double step = settled ? std::clamp(value - mean_, -border, border) : value - mean_;
  mean_ += share * step;
  variance_ = (1 - share) * (variance_ + share * step * step);
  return unexpected;
}

void Novelty::mark(double deviation) {
  const auto relaxed = std::memory_order_relaxed;
  usual_in_a_row_ = 0;
  marked_.store(marked() + 1, relaxed);
  if (!in_event()) {
    events_.store(events() + 1, relaxed);
    event_began_.store(seen_ - 1, relaxed);
    event_peak_.store(deviation, relaxed);
    in_event_.store(true, relaxed);
  }
  event_peak_.store(std::max(event_peak(), deviation), relaxed);
}

}  // namespace millrace::app
