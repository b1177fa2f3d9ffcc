// Sees a run go astray by its losses, early enough to roll back.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

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

  static constexpr std::size_t kRecent = 10, kHistory = 200;

  /// What it tells of its roll-backs.
  struct Told {
    std::int64_t roll_backs = 0, last_sample = 0;
    double last_loss = 0, last_median = 0;
  };
  /// What it goes by: plain numbers, so that another process's guard can judge on.
  struct State {
    std::array<float, kRecent> recent{};    ///< a ring
    std::array<float, kHistory> history{};  ///< a ring
    std::int64_t seen = 0;                  ///< since the last roll-back
    double began = -1;                      ///< mean of the run's first kRecent losses
    std::int64_t discard_until = 0;
    int not_finite = 0;  ///< in a row
  };

  /// `in_flight`: samples after a roll-back whose gradients are discarded, as many as were in flight.
  explicit LossGuard(std::int64_t in_flight);
  Alarm judge(std::int64_t sample, float loss);

  /// By who judges, or when nobody does.
  const State& state() const { return is_; }
  void go_on_from(const State& state, const Told& told);
  /// Any thread.
  Told told() const;
  /// What another process's guard has told: this one judges nothing.
  void mirror(const Told& told);

  std::int64_t roll_backs() const { return roll_backs_.load(std::memory_order_relaxed); }
  std::int64_t last_sample() const { return last_sample_.load(std::memory_order_relaxed); }
  double last_loss() const { return last_loss_.load(std::memory_order_relaxed); }
  double last_median() const { return last_median_.load(std::memory_order_relaxed); }

 private:
  static constexpr double kFactor = 10;
  static constexpr int kNotFinite = 4;  ///< in a row: the weights' fault

  double median();
  Alarm roll_back(std::int64_t sample, double loss, double median);

  const std::int64_t in_flight_;
  State is_;
  std::array<float, kHistory> sorted_;  ///< scratch
  std::atomic<std::int64_t> roll_backs_{0}, last_sample_{0};
  std::atomic<double> last_loss_{0}, last_median_{0};
};

}  // namespace millrace::engine
