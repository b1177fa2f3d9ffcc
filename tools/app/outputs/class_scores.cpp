#include "tools/app/outputs/class_scores.h"

#include <algorithm>

namespace millrace::app {

Overlap::Overlap(std::size_t classes)
    : now_(2 * classes), latest_(now_), all_(now_), ring_(kRecent, now_) {}

void Overlap::add(std::size_t truth, std::size_t told) {
  const std::size_t classes = now_.size() / 2;
  ++now_[classes + truth];
  if (truth == told) {
    ++now_[truth];
  } else {
    ++now_[classes + told];
  }
}

void Overlap::end_frame() {
  Counts& oldest = ring_[frames_++ % kRecent];
  for (std::size_t i = 0; i < now_.size(); ++i) {
    all_[i] += now_[i];
    latest_[i] += now_[i] - oldest[i];
  }
  oldest.swap(now_);
  std::fill(now_.begin(), now_.end(), 0);
  recent_.store(share(latest_), std::memory_order_relaxed);
}

double Overlap::share(const Counts& counts) {
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

ClassScores::ClassScores(std::size_t classes, std::size_t pixels, std::size_t offset)
    : classes_(classes),
      pixels_(pixels),
      offset_(offset),
      truth_(pixels),
      told_(pixels),
      majority_(pixels),
      latest_(pixels, kNone),
      best_(pixels),
      counts_(classes * pixels),
      overlap_(classes),
      majority_overlap_(classes) {}

void ClassScores::see(const float* target, const float* prediction) {
  largest(target + offset_, true, truth_);
  largest(prediction + offset_, false, told_);
  std::int64_t seen = 0, right = 0, usual = 0, again = 0, known = 0;
  for (std::size_t i = 0; i < pixels_; ++i) {
    const std::size_t truth = truth_[i];
    if (truth == kNone) continue;
    ++seen;
    right += told_[i] == truth;
    usual += majority_[i] == truth;
    known += latest_[i] != kNone;
    again += latest_[i] == truth;
    latest_[i] = truth;
    overlap_.add(truth, told_[i]);
    majority_overlap_.add(truth, majority_[i]);
    const std::int32_t count = ++counts_[truth * pixels_ + i],
                       most = counts_[majority_[i] * pixels_ + i];
    if (count > most || (count == most && truth < majority_[i])) majority_[i] = truth;
  }
  if (seen == 0) return;
  hits_.add(float(right) / float(seen));
  majority_hits_.add(float(usual) / float(seen));
  if (known > 0) last_hits_.add(float(again) / float(known));
  overlap_.end_frame();
  majority_overlap_.end_frame();
}

void ClassScores::largest(const float* numbers, bool any, std::vector<std::size_t>& classes) {
  std::copy_n(numbers, pixels_, best_.begin());
  std::fill(classes.begin(), classes.end(), 0);
  for (std::size_t k = 1; k < classes_; ++k) {
    const float* const plane = numbers + k * pixels_;
    for (std::size_t i = 0; i < pixels_; ++i) {
      if (plane[i] > best_[i]) {
        best_[i] = plane[i];
        classes[i] = k;
      }
    }
  }
  for (std::size_t i = 0; any && i < pixels_; ++i) {
    if (best_[i] <= 0) classes[i] = kNone;
  }
}

}  // namespace millrace::app
