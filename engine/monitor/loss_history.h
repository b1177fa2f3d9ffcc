#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/monitor/downsampled.h"
#include "engine/monitor/histogram.h"

namespace millrace::engine {

/// The losses of an endless run in fixed memory: first, last, mean, mean of the latest kRecent (all
/// nan before the first loss), and a curve of at most kPoints points. One writer; any thread may
/// read all but curve(). Never allocates after construction.
class LossHistory {
 public:
  static constexpr std::int64_t kRecent = 100;
  static constexpr std::size_t kPoints = 2048;

  void add(float loss) {
    const std::int64_t n = count();
    if (n == 0) first_ = loss;
    if (!std::isfinite(loss)) not_finite_ += 1;
    sum_ += loss;
    ring_[n % kRecent] = loss;
    const std::int64_t filled = std::min(n + 1, kRecent);
    // Summed afresh: a running difference would drift and never recover from a nan.
    recent_ = std::accumulate(ring_.begin(), ring_.begin() + filled, 0.0) / double(filled);
    last_ = loss;
    count_ = n + 1;
    curve_.add({loss});
  }
  /// Sets last() alone: for a loss that is not counted.
  void show(float loss) { last_ = loss; }

  std::int64_t count() const { return count_; }
  double last() const { return last_; }
  double recent() const { return recent_; }
  double first() const { return first_; }
  double mean() const { return count() > 0 ? sum_ / double(count()) : kNone; }
  std::int64_t not_finite() const { return not_finite_; }
  /// Points (the sample number at its middle, mean loss).
  std::vector<std::pair<double, double>> curve() const {
    std::vector<std::pair<double, double>> curve;
    const auto& points = curve_.points();
    const double width = double(curve_.width());
    for (std::size_t i = 0; i < points.size(); ++i)
      curve.emplace_back((double(i) + 0.5) * width - 0.5, points[i][0]);
    return curve;
  }

 private:
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  Counter<std::int64_t> count_, not_finite_;
  Counter<double> last_{kNone}, recent_{kNone}, first_{kNone}, sum_;
  std::vector<float> ring_ = std::vector<float>(kRecent);  ///< the latest losses
  Downsampled<1> curve_{kPoints};
};

}  // namespace millrace::engine
