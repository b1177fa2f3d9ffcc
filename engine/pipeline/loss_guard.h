// Sees a run go astray by its losses, early enough to roll back.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace millrace::engine {

/// What the stages should do about a sample's gradients.
enum class Alarm : std::uint8_t {
  none,
  discard,    ///< forget them: not finite, or made by weights that are given up
  roll_back,  ///< go back to the last good snapshot and learn more slowly
};

/// Losses of an endless run, judged one by one. A loss that is not finite is discarded: one may be
/// its frame's fault. Diverged is: four of those in a row; or, over the latest 10 samples, above 10
/// times the median of the 200 before and above what the run began with, since a new scene may well
/// make the loss jump, but not to worse than untrained. Written by the last stage's worker;
/// roll_backs() and the last_...() from any thread. Never allocates after construction.
class LossGuard {
 public:
  /// What a stage's rate is multiplied by at each roll-back.
  static constexpr double kSlower = 0.5;
  /// Updates of a stage between snapshots.
  static constexpr std::int64_t kSnapshotEvery = 100;

  /// `settle`: samples after a roll-back whose gradients are discarded, as many as were in flight.
  explicit LossGuard(std::int64_t settle);
  Alarm judge(std::int64_t sample, float loss);

  /// What another process's guard has counted: this one judges nothing.
  void mirror(std::int64_t roll_backs, std::int64_t sample, double loss, double median) {
    last_sample_.store(sample, std::memory_order_relaxed);
    last_loss_.store(loss, std::memory_order_relaxed);
    last_median_.store(median, std::memory_order_relaxed);
    roll_backs_.store(roll_backs, std::memory_order_relaxed);
  }

  std::int64_t roll_backs() const { return roll_backs_.load(std::memory_order_relaxed); }
  std::int64_t last_sample() const { return last_sample_.load(std::memory_order_relaxed); }
  double last_loss() const { return last_loss_.load(std::memory_order_relaxed); }
  double last_median() const { return last_median_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kRecent = 10, kHistory = 200;
  static constexpr double kFactor = 10;
  static constexpr int kNotFinite = 4;  ///< in a row: the weights' fault

  double median();
  Alarm roll_back(std::int64_t sample, double loss, double median);

  const std::int64_t settle_;
  std::vector<float> recent_, history_, sorted_;  ///< rings; scratch
  std::int64_t seen_ = 0;                         ///< since the last roll-back
  double began_ = -1;                             ///< mean of the run's first kRecent losses
  std::int64_t discard_until_ = 0;
  int not_finite_ = 0;  ///< in a row
  std::atomic<std::int64_t> roll_backs_{0}, last_sample_{0};
  std::atomic<double> last_loss_{0}, last_median_{0};
};

}  // namespace millrace::engine
