#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "engine/pipeline/feed.h"

namespace millrace::engine {

enum class Alarm : std::uint8_t {
  none,
  discard,    ///< not finite, or from weights that were rolled back
  roll_back,  ///< restore the last good snapshot, with a smaller learning rate
};

/// Distinguishes a change of scene from other causes of a loss jump. Measures the errors of trivial
/// predictors, which jump when the scene changes and do not depend on the weights: of the mean of
/// the latest 200 frames, on each sample's input and target, and of the previous input. Where
/// scenes alternate the mean frame is always wrong, but one that moves more still shows. The error
/// of class scores' targets is, as their loss, a cross-entropy: that of how often each class came.
/// Estimated from at most 1,024 elements spread over a frame. Thread-bound; allocates at the first
/// sample only.
class SceneWatch {
 public:
  /// `classes`: targets are those of class scores.
  explicit SceneWatch(bool classes = false) : target_(classes) {}
  /// Sets `sample.info.scene`. `target`: whether it is already known. A replayed sample is compared
  /// but changes no predictor.
  void see(Sample& sample, bool target);
  /// Learns from a sample outside a pipeline and returns its errors. `target` may be empty.
  SceneErrors see(std::span<const float> input, std::span<const float> target);

 private:
  struct Errors {
    float mean = 0, change = 0;
  };
  class Frames {
   public:
    explicit Frames(bool classes = false) : classes_(classes) {}
    template <class Element>
    Errors compare(std::span<const Element> frame, float scale, bool learns);

   private:
    const bool classes_;
    std::vector<float> mean_, previous_;
    std::int64_t seen_ = 0;
    Errors last_;
  };

  Frames input_, target_;
};

/// Detects divergence from the losses of an endless run, early enough to roll back. A non-finite
/// loss is discarded: one may be its frame's fault, four in a row are the weights'; if these are
/// the first, no snapshot is good, and judge() throws std::runtime_error. The loss is raised if the
/// median of the latest 10 exceeds 10 times the median of the 200 before; or exceeds both twice the
/// first loss and three times the mean frame's error, as if nothing had been learned. A loss of up
/// to 1e-4, or a hundredth of the first one, is never raised. A change of scene excuses a raised
/// loss: a trivial predictor's error (SampleInfo::scene) has risen as much at the same moment, or
/// has risen and is as high as the loss. Raised without excuse means diverged.
///
/// After a roll-back, losses are still measured against those from before it. Gradients are
/// discarded until the restored weights have shown a few losses: if these are raised, too, the
/// weights were not at fault, and their loss becomes the new reference. A loss that is raised and
/// excused for 200 samples becomes the reference, too.
///
/// Written by the last stage's worker, `scene` by the first's; status() and all below it: any
/// thread. Never allocates.
class LossGuard {
 public:
  /// Updates of a stage between snapshots.
  static constexpr std::int64_t kSnapshotEvery = 100;

  static constexpr int kRecent = 10, kHistory = 200;
  static constexpr int kProbe = 5;  ///< losses of restored weights to judge by

  /// The state visible to other threads.
  struct Status {
    std::int64_t roll_backs = 0;
    std::int64_t judged = 0;      ///< samples, including those without a target
    std::int64_t last_frame = 0;  ///< at the last roll-back, numbered by the source
    double last_loss = 0, last_median = 0;
    bool astray = false;  ///< the current weights may have diverged
    /// The run's end would bring a roll-back, which is not counted yet; the three below are its.
    bool due = false;
    std::int64_t due_frame = 0;
    double due_loss = 0, due_median = 0;
  };
  struct Moment {
    float loss = 0;
    SceneErrors scene;
  };
  /// Everything that verdicts depend on: plain numbers, with which another process can continue.
  struct State {
    std::array<Moment, kRecent> recent{};    ///< a ring
    std::array<Moment, kHistory> history{};  ///< a ring: the reference losses
    std::array<float, kProbe> probe{};
    std::int64_t seen = 0;   ///< losses put into `recent` since the last roll-back
    std::int64_t known = 0;  ///< losses put into `history`
    double began = -1;       ///< the first loss: that of untrained weights
    std::int64_t discard_until = 0, excused_until = 0;
    int probed = 0, not_finite = 0, raised_for = 0;  ///< the latter two count consecutive losses
  };

  /// `in_flight`: samples in flight at a roll-back, whose gradients are discarded. `classes`: the
  /// network gives class scores.
  explicit LossGuard(std::int64_t in_flight, bool classes = false)
      : scene(classes), in_flight_(in_flight) {}
  Alarm judge(const SampleInfo& sample, float loss);
  /// Ends a run: returns whether its weights must be rolled back, and counts that roll-back. Call
  /// while no thread judges. Needs status() alone, so a guard that mirrors another does the same.
  bool end();
  SceneWatch scene;  ///< sees each sample before it is judged

  /// Called by the judging thread, or while no thread judges.
  const State& state() const { return is_; }
  void go_on_from(const State& state, const Status& status);
  Status status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  /// Adopts another guard's verdicts if it has judged more samples. This one must not judge.
  void mirror(const Status& status);

  std::int64_t roll_backs() const { return status().roll_backs; }
  /// Whether weights copied at `then` have proved good: enough losses since, and no roll-back.
  bool proved(const Status& then) const;
  /// Whether weights copied at `then` have proved bad.
  bool disproved(const Status& then) const;

 private:
  Alarm verdict(const SampleInfo& sample, float loss);
  Alarm look(const SampleInfo& sample);
  Alarm discard(const SampleInfo& sample, float loss);
  Alarm roll_back(const SampleInfo& sample, double loss);
  /// Under mutex_. `discard_until`: when learning continues.
  void count_roll_back(std::int64_t frame, double loss, double median, std::int64_t discard_until);
  std::int64_t window() const { return in_flight_ + kProbe + kRecent; }

  const std::int64_t in_flight_;
  State is_;
  mutable std::mutex mutex_;
  Status status_;  ///< under mutex_
};

}  // namespace millrace::engine
