// How well classes are told, of frames or of their pixels, beside always telling the majority.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "engine/monitor/loss_history.h"

namespace millrace::app {

/// Mean intersection over union, over the classes that were there or were told; of all frames and
/// of the latest kRecent. Written by one thread; recent() from any.
class Overlap {
 public:
  explicit Overlap(std::size_t classes);
  /// A pixel of class `truth` was told to be `told`.
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

/// Written by the last stage's worker, without allocation; what can be read meanwhile, histories
/// and Overlap say.
class ClassScores {
 public:
  /// Of numbers [classes][pixels] that begin after the `offset`-th of a target.
  ClassScores(std::size_t classes, std::size_t pixels, std::size_t offset = 0);

  /// One frame, before the majority learns of it. A pixel whose targets are all 0 has no class.
  void see(const float* target, const float* prediction);

  /// A frame's share of pixels (a label's: 1 or 0) that were told right.
  const engine::LossHistory& hits() const { return hits_; }
  /// The same of always telling the class that the pixel had most often so far.
  const engine::LossHistory& majority_hits() const { return majority_hits_; }
  const Overlap& overlap() const { return overlap_; }
  const Overlap& majority_overlap() const { return majority_overlap_; }
  bool pixels() const { return pixels_ > 1; }

 private:
  static constexpr std::size_t kNone = std::size_t(-1);
  /// By pixel, the class of the largest number; kNone where `any` is asked for and all are 0.
  void largest(const float* numbers, bool any, std::vector<std::size_t>& classes);

  const std::size_t classes_, pixels_, offset_;
  std::vector<std::size_t> truth_, told_, majority_;
  std::vector<float> best_;
  std::vector<std::int32_t> counts_;  ///< [classes][pixels]: frames so far
  engine::LossHistory hits_, majority_hits_;
  Overlap overlap_, majority_overlap_;
};

}  // namespace millrace::app
