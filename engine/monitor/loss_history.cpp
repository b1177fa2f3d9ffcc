#include "engine/monitor/loss_history.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace millrace::engine {

void LossHistory::add(float loss) {
  const std::int64_t n = count();
  if (n == 0) first_ = loss;
  if (!std::isfinite(loss)) ++not_finite_;
  sum_ += loss;
  ring_[n % kRecent] = loss;
  const std::int64_t filled = std::min(n + 1, kRecent);
  // Summed afresh: a running difference would drift, and would never recover from a nan.
  recent_ = std::accumulate(ring_.begin(), ring_.begin() + filled, 0.0) / double(filled);
  last_ = loss;
  count_ = n + 1;
  curve_.add({loss});
}

std::vector<std::pair<double, double>> LossHistory::curve() const {
  std::vector<std::pair<double, double>> curve;
  const auto& points = curve_.points();
  const double width = double(curve_.width());
  for (std::size_t i = 0; i < points.size(); ++i)
    curve.emplace_back((double(i) + 0.5) * width - 0.5, points[i][0]);
  return curve;
}

}  // namespace millrace::engine
