// Sees a run go astray by its losses, early enough to roll back.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

#include "engine/pipeline/feed.h"

namespace millrace::engine {

/// What the stages should do about a sample's gradients.
enum class Alarm : std::uint8_t {
  none,
  discard,    ///< forget them: not finite, or made by weights that are given up
  roll_back,  ///< go back to the last good snapshot and learn more slowly
};

/// Losses of an endless run, judged one by one. A loss that is not finite is discarded: one may be
/// its frame's fault, four in a row are the weights'. A loss is raised if the median of the latest
/// 10 is above 10 times the median of the 200 before; or above twice the first loss, when nothing
/// was learned, and three times the mean frame's error. A raised loss is excused by a change of
/// scene: the error of the mean frame (SampleInfo::scene) has risen as much at the same moment, or
/// is as high as the loss. Raised without an excuse is diverged.
///
/// After a roll-back the losses from before remain the measure. Gradients are discarded until the
/// restored weights have shown a few losses: if these are raised, too, the weights were not at
/// fault, and the loss as it is becomes the measure. So does a loss that is raised and excused for
/// 200 samples.
///
/// Written by the last stage's worker; told() and what follows it from any thread. Never allocates.
class LossGuard {
 public:
  /// Updates of a stage between snapshots.
  static constexpr std::int64_t kSnapshotEvery = 100;

  static constexpr int kRecent = 10, kHistory = 200;
  static constexpr int kProbe = 5;  ///< losses that restored weights show

  /// What others may know of it.
  struct Told {
    std::int64_t roll_backs = 0;
    std::int64_t judged = 0;      ///< samples; those without a target count, too
    std::int64_t last_frame = 0;  ///< of the last roll-back, by its number at the source
    double last_loss = 0, last_median = 0;
    bool astray = false;  ///< whether weights made by now may have diverged
  };
  struct Moment {
    float loss = 0;
    SceneErrors scene;
  };
  /// What it goes by: plain numbers, so that another process's guard can judge on.
  struct State {
    std::array<Moment, kRecent> recent{};    ///< a ring
    std::array<Moment, kHistory> history{};  ///< a ring: the losses to measure by
    std::array<float, kProbe> probe{};
    std::int64_t seen = 0;   ///< in `recent`, since the last roll-back
    std::int64_t known = 0;  ///< put into `history`
    double began = -1;       ///< the first loss; what untrained weights lose
    std::int64_t discard_until = 0, excused_until = 0;
    int probed = 0, not_finite = 0, raised_for = 0;  ///< the latter two in a row
  };

  /// `in_flight`: samples after a roll-back whose gradients are discarded, as many as were in
  /// flight.
  explicit LossGuard(std::int64_t in_flight);
  Alarm judge(const SampleInfo& sample, float loss);

  /// By who judges, or when nobody does.
  const State& state() const { return is_; }
  void go_on_from(const State& state, const Told& told);
  /// Any thread.
  Told told() const {
    const std::lock_guard lock(mutex_);
    return told_;
  }
  /// What another process's guard has told, if it has judged more: this one judges nothing.
  void mirror(const Told& told);

  std::int64_t roll_backs() const { return told().roll_backs; }
  /// Whether weights that were copied when `then` was told have proved good: losses since have
  /// shown no roll-back.
  bool proved(const Told& then) const;
  /// Whether they have proved bad.
  bool disproved(const Told& then) const;

 private:
  bool measures() const;
  double usual_loss();
  SceneErrors usual_scene();
  bool raised(double loss, const SceneErrors& scene);
  bool excused(double loss, const SceneErrors& scene);
  void remember(const Moment& now);
  Alarm verdict(const SampleInfo& sample, float loss);
  Alarm look(const SampleInfo& sample);
  Alarm discard(const SampleInfo& sample, float loss);
  void measure_by(double loss);
  Alarm roll_back(const SampleInfo& sample, double loss);
  bool leaps();  ///< the last three losses
  template <class Value>
  double median(std::int64_t count, const Value& value);
  std::int64_t window() const { return in_flight_ + kProbe + kRecent; }

  const std::int64_t in_flight_;
  State is_;
  std::array<float, kHistory> sorted_;  ///< scratch
  mutable std::mutex mutex_;
  Told told_;  ///< under mutex_
};

}  // namespace millrace::engine
