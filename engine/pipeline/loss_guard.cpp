#include "engine/pipeline/loss_guard.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace millrace::engine {

LossGuard::LossGuard(std::int64_t settle)
    : settle_(settle), recent_(kRecent), history_(kHistory), sorted_(kHistory) {}

Alarm LossGuard::judge(std::int64_t sample, float loss) {
  if (sample < discard_until_) return Alarm::discard;
  if (!std::isfinite(loss))
    return ++not_finite_ < kNotFinite ? Alarm::discard : roll_back(sample, loss, median());
  not_finite_ = 0;
  // The history ends where the recent losses begin.
  float& slot = recent_[std::size_t(seen_) % kRecent];
  if (seen_ >= std::int64_t(kRecent)) history_[(std::size_t(seen_) - kRecent) % kHistory] = slot;
  slot = loss;
  ++seen_;
  if (seen_ < std::int64_t(kRecent)) return Alarm::none;
  const double mean = std::accumulate(recent_.begin(), recent_.end(), 0.0) / double(kRecent);
  if (began_ < 0) began_ = mean;
  if (seen_ < std::int64_t(kRecent + kHistory) || mean <= began_) return Alarm::none;
  const double middle = median();
  return mean > kFactor * middle ? roll_back(sample, mean, middle) : Alarm::none;
}

double LossGuard::median() {
  const std::int64_t known = std::min<std::int64_t>(seen_ - std::int64_t(kRecent), kHistory);
  if (known <= 0) return 0;
  std::copy_n(history_.begin(), known, sorted_.begin());
  const auto middle = sorted_.begin() + known / 2;
  std::nth_element(sorted_.begin(), middle, sorted_.begin() + known);
  return *middle;
}

Alarm LossGuard::roll_back(std::int64_t sample, double loss, double median) {
  last_sample_.store(sample, std::memory_order_relaxed);
  last_loss_.store(loss, std::memory_order_relaxed);
  last_median_.store(median, std::memory_order_relaxed);
  roll_backs_.store(roll_backs() + 1, std::memory_order_relaxed);
  seen_ = 0;
  not_finite_ = 0;
  discard_until_ = sample + 1 + settle_;
  return Alarm::roll_back;
}

}  // namespace millrace::engine
