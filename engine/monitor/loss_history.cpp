#include "engine/monitor/loss_history.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace millrace::engine {

LossHistory::LossHistory() : ring_(kRecent, 0.0f) {
  points_.reserve(kPoints);
}

void LossHistory::add(float loss) {
  const std::int64_t n = count();
  if (n == 0) first_ = loss;
  if (!std::isfinite(loss)) ++not_finite_;
  sum_ += loss;
  ring_[n % kRecent] = loss;
  const std::int64_t filled = std::min(n + 1, kRecent);
  // Summed afresh: a running difference would drift, and would never recover from a nan.
  recent_.store(std::accumulate(ring_.begin(), ring_.begin() + filled, 0.0) / double(filled),
                std::memory_order_relaxed);
  last_.store(loss, std::memory_order_relaxed);
  count_.store(n + 1, std::memory_order_relaxed);
  open_ += loss;
  if (++open_count_ < width_) return;
  if (points_.size() == kPoints) thin();
  if (open_count_ == width_) {
    points_.push_back(open_);
    open_ = 0;
    open_count_ = 0;
  }
}

void LossHistory::thin() {
  for (std::size_t i = 0; i < kPoints / 2; ++i) points_[i] = points_[2 * i] + points_[2 * i + 1];
  points_.resize(kPoints / 2);
  width_ *= 2;
}

std::vector<std::pair<double, double>> LossHistory::curve() const {
  std::vector<std::pair<double, double>> curve;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    curve.emplace_back((double(i) + 0.5) * double(width_) - 0.5, points_[i] / double(width_));
  }
  return curve;
}

}  // namespace millrace::engine
