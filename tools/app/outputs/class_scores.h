// How well classes of frames or pixels are predicted, compared with always predicting the majority.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "engine/monitor/loss_history.h"

namespace millrace::app {

/// Mean intersection over union, over the classes that occurred or were predicted; of all frames
/// and of the latest kRecent. Written by one thread; recent() from any.
class Overlap {
 public:
  explicit Overlap(std::size_t classes);
  /// Counts a pixel of class `truth` that was predicted as `told`.
  void add(std::size_t truth, std::size_t told);
  void end_frame();
  double mean() const { return share(all_); }
  double recent() const { return recent_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kRecent = std::size_t(engine::LossHistory::kRecent);
  /// By class: pixels in both, and in either.
  using Counts = std::vector<std::int64_t>;
  static double share(const Counts& counts);

  Counts now_, latest_, all_;
  std::vector<Counts> ring_;
  std::size_t frames_ = 0;
  std::atomic<double> recent_{0};
};

/// Written by the last stage's worker, without allocation. LossHistory and Overlap say what other
/// threads may read.
class ClassScores {
 public:
  /// For targets with numbers [classes][pixels] from `offset` on.
  ClassScores(std::size_t classes, std::size_t pixels, std::size_t offset = 0);

  /// Scores one frame, then counts it for the majority. A pixel whose targets are all 0 has no
  /// class.
  void see(const float* target, const float* prediction);

  /// By frame: the share of pixels predicted right; for labels 1 or 0.
  const engine::LossHistory& hits() const { return hits_; }
  /// The same for always predicting the pixel's most frequent class so far.
  const engine::LossHistory& majority_hits() const { return majority_hits_; }
  /// The same for always predicting the pixel's latest class; none before the second frame.
  const engine::LossHistory& last_hits() const { return last_hits_; }
  const Overlap& overlap() const { return overlap_; }
  const Overlap& majority_overlap() const { return majority_overlap_; }
  bool pixels() const { return pixels_ > 1; }

 private:
  static constexpr std::size_t kNone = std::size_t(-1);
  /// By pixel, the class of the largest number; with `any`, kNone if all are 0.
  void largest(const float* numbers, bool any, std::vector<std::size_t>& classes);

  const std::size_t classes_, pixels_, offset_;
  std::vector<std::size_t> truth_, told_, majority_, latest_;
  std::vector<float> best_;
  std::vector<std::int32_t> counts_;  ///< [classes][pixels]: frames so far
  engine::LossHistory hits_, majority_hits_, last_hits_;
  Overlap overlap_, majority_overlap_;
};

}  // namespace millrace::app
