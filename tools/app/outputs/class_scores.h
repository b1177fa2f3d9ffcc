#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "engine/monitor/loss_history.h"

namespace millrace::app {

/// Mean intersection over union over the classes that occurred or were predicted, of all frames and
/// of the latest kRecent. One writer; mean() and recent() from any thread.
class Overlap {
 public:
  explicit Overlap(std::size_t classes)
      : now_(2 * classes), latest_(now_), all_(now_), ring_(kRecent, now_) {}
  void add(std::size_t truth, std::size_t told) {
    const std::size_t classes = now_.size() / 2;
    ++now_[classes + truth];
    ++now_[truth == told ? truth : classes + told];
  }
  void end_frame() {
    Counts& oldest = ring_[frames_++ % kRecent];
    for (std::size_t i = 0; i < now_.size(); ++i) {
      all_[i] += now_[i];
      latest_[i] += now_[i] - oldest[i];
    }
    oldest.swap(now_);
    std::fill(now_.begin(), now_.end(), 0);
    mean_ = share(all_);
    recent_ = share(latest_);
  }
  double mean() const { return mean_; }
  double recent() const { return recent_; }

 private:
  static constexpr std::size_t kRecent = std::size_t(engine::LossHistory::kRecent);
  /// [class]: pixels in the intersection, then in the union.
  using Counts = std::vector<std::int64_t>;
  static double share(const Counts& counts) {
    const std::size_t classes = counts.size() / 2;
    double sum = 0;
    int there = 0;
    for (std::size_t k = 0; k < classes; ++k) {
      const std::int64_t both = counts[k], either = counts[classes + k];
      if (either == 0) continue;
      sum += double(both) / double(either);
      ++there;
    }
    return there > 0 ? sum / there : 0;
  }

  Counts now_, latest_, all_;
  std::vector<Counts> ring_;
  std::size_t frames_ = 0;
  engine::Counter<double> mean_, recent_;
};

/// Per pixel of `numbers` [classes][pixels], the class of the largest value above `floor`; `none`
/// where there is no such value, as among NaNs. `most` is scratch; it and `out` have a value per
/// pixel.
template <class Class>
void find_largest(const float* numbers, std::size_t classes, float floor, Class none,
                  std::vector<float>& most, std::vector<Class>& out) {
  std::fill(most.begin(), most.end(), floor);
  std::fill(out.begin(), out.end(), none);
  for (std::size_t k = 0; k < classes; ++k) {
    const float* const plane = numbers + k * out.size();
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (plane[i] > most[i]) {
        most[i] = plane[i];
        out[i] = Class(k);
      }
    }
  }
}

/// A score of the network, and of always predicting each pixel's most frequent class so far.
template <class History>
struct Scores {
  History network, majority;
};

/// Accuracy of class predictions per frame or pixel, compared with the majority class. Written by
/// the last stage's worker, without allocation; readers: see LossHistory, Overlap.
class ClassScores {
 public:
  /// For targets with values [classes][pixels] from `offset` on. `judged`: frames of a returning
  /// class that the network answers before it has learned from them; only for one pixel.
  ClassScores(std::size_t classes, std::size_t pixels, std::size_t offset = 0,
              std::int64_t judged = 1)
      : classes_(classes),
        pixels_(pixels),
        offset_(offset),
        judged_(judged),
        truth_(pixels),
        told_(pixels),
        majority_(pixels),
        latest_(pixels, kNone),
        most_(pixels),
        counts_(classes * pixels),
        overlap_{Overlap(classes), Overlap(classes)} {}

  /// Scores frame number `frame`, then counts it for the majority. An all-zero target has no class.
  void see(const float* target, const float* prediction, std::int64_t frame) {
    constexpr float kLeast = -std::numeric_limits<float>::infinity();
    find_largest(target + offset_, classes_, 0, kNone, most_, truth_);
    find_largest(prediction + offset_, classes_, kLeast, std::size_t(0), most_, told_);
    std::int64_t seen = 0, right = 0, usual = 0, again = 0;
    for (std::size_t i = 0; i < pixels_; ++i) {
      const std::size_t truth = truth_[i];
      if (truth == kNone) continue;
      ++seen;
      right += told_[i] == truth;
      usual += majority_[i] == truth;
      again += (latest_[i] == kNone ? told_[i] : latest_[i]) == truth;
      before_ = std::exchange(latest_[i], truth);
      overlap_.network.add(truth, told_[i]);
      overlap_.majority.add(truth, majority_[i]);
      const std::int32_t count = ++counts_[truth * pixels_ + i],
                         most = counts_[majority_[i] * pixels_ + i];
      if (count > most || (count == most && truth < majority_[i])) majority_[i] = truth;
    }
    if (seen == 0) return;
    if (pixels_ == 1) judge(truth_[0], frame, right > 0, usual > 0);
    hits_.network.add(float(right) / float(seen));
    hits_.majority.add(float(usual) / float(seen));
    last_hits_.add(float(again) / float(seen));
    overlap_.network.end_frame();
    overlap_.majority.end_frame();
  }

  /// Per frame: the share of pixels predicted right; for labels 1 or 0.
  const Scores<engine::LossHistory>& hits() const { return hits_; }
  /// hits() when always predicting each pixel's latest class; before there is one, the network's,
  /// so that both are judged on the same frames.
  const engine::LossHistory& last_hits() const { return last_hits_; }
  /// hits() in the first frames of a class that has been labelled before, after another was:
  /// repeating the last label is wrong there.
  const Scores<engine::LossHistory>& returned() const { return returned_; }
  const Scores<Overlap>& overlap() const { return overlap_; }
  bool pixels() const { return pixels_ > 1; }

 private:
  static constexpr std::size_t kNone = std::size_t(-1);
  void judge(std::size_t truth, std::int64_t frame, bool right, bool usual) {
    // counts_ already includes this frame.
    const bool returns = before_ != kNone && before_ != truth && counts_[truth] > 1;
    if (before_ != truth) judged_until_ = returns ? frame + judged_ : frame;
    if (frame >= judged_until_) return;
    returned_.network.add(right ? 1.0f : 0.0f);
    returned_.majority.add(usual ? 1.0f : 0.0f);
  }

  const std::size_t classes_, pixels_, offset_;
  const std::int64_t judged_;
  std::int64_t judged_until_ = 0;
  std::size_t before_ = kNone;  ///< with one pixel: the class labelled before this frame's
  std::vector<std::size_t> truth_, told_, majority_, latest_;
  std::vector<float> most_;
  std::vector<std::int32_t> counts_;  ///< [classes][pixels]: frames so far
  Scores<engine::LossHistory> hits_, returned_;
  engine::LossHistory last_hits_;
  Scores<Overlap> overlap_;
};

}  // namespace millrace::app
