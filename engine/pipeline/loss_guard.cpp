#include "engine/pipeline/loss_guard.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace millrace::engine {

LossGuard::LossGuard(std::int64_t in_flight) : in_flight_(in_flight) {}

void LossGuard::go_on_from(const State& state, const Told& told) {
  is_ = state;
  mirror(told);
}

LossGuard::Told LossGuard::told() const {
  return {roll_backs(), last_sample(), last_loss(), last_median()};
}

void LossGuard::mirror(const Told& told) {
  last_sample_.store(told.last_sample, std::memory_order_relaxed);
  last_loss_.store(told.last_loss, std::memory_order_relaxed);
  last_median_.store(told.last_median, std::memory_order_relaxed);
  roll_backs_.store(told.roll_backs, std::memory_order_relaxed);
}

Alarm LossGuard::judge(std::int64_t sample, float loss) {
  if (sample < is_.discard_until) return Alarm::discard;
  if (!std::isfinite(loss))
    return ++is_.not_finite < kNotFinite ? Alarm::discard : roll_back(sample, loss, median());
  is_.not_finite = 0;
  // The history ends where the recent losses begin.
  float& slot = is_.recent[std::size_t(is_.seen) % kRecent];
  if (is_.seen >= std::int64_t(kRecent))
    is_.history[(std::size_t(is_.seen) - kRecent) % kHistory] = slot;
  slot = loss;
  ++is_.seen;
  if (is_.seen < std::int64_t(kRecent)) return Alarm::none;
  const double mean = std::accumulate(is_.recent.begin(), is_.recent.end(), 0.0) / double(kRecent);
  if (is_.began < 0) is_.began = mean;
  if (is_.seen < std::int64_t(kRecent + kHistory) || mean <= is_.began) return Alarm::none;
  const double middle = median();
  return mean > kFactor * middle ? roll_back(sample, mean, middle) : Alarm::none;
}

double LossGuard::median() {
  const std::int64_t known = std::min<std::int64_t>(is_.seen - std::int64_t(kRecent), kHistory);
  if (known <= 0) return 0;
  std::copy_n(is_.history.begin(), known, sorted_.begin());
  const auto middle = sorted_.begin() + known / 2;
  std::nth_element(sorted_.begin(), middle, sorted_.begin() + known);
  return *middle;
}

Alarm LossGuard::roll_back(std::int64_t sample, double loss, double median) {
  mirror({roll_backs() + 1, sample, loss, median});
  is_.seen = 0;
  is_.not_finite = 0;
  is_.discard_until = sample + 1 + in_flight_;
  return Alarm::roll_back;
}

}  // namespace millrace::engine
