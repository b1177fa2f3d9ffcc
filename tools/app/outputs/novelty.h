#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/monitor/histogram.h"

namespace millrace::app {

struct NoveltyOptions {
  double deviations = 4.0;        ///< from the mean; more is unexpected
  std::int64_t minimum = 1;       ///< unexpected frames in a row that make an event
  double cooldown = 0;            ///< seconds after an event in which none begins
  std::int64_t memory = 1000;     ///< frames that the statistics cover
  std::int64_t settling = 300;    ///< frames at the start that are never unexpected
  std::int64_t calm = 25;         ///< expected frames in a row that end an event
  double least_deviation = 0.05;  ///< of the logarithm; with 4 deviations, 5 % is never unexpected
};

/// The running mean and deviation of a value's logarithm, since values are skewed and fall by
/// decades during learning. Outliers are clamped to the threshold: a single strange frame doesn't
/// make the next one normal, but what lasts becomes normal.
class Usual {
 public:
  /// How many deviations `value` lies above the mean; then updates both.
  double compare(double value, const NoveltyOptions& options) {
    const std::int64_t number = seen_++;
    const bool settled = number >= options.settling;
    value = std::log(std::max(value, kNothing));
    const double spread = std::max(std::sqrt(variance_), options.least_deviation);
    const double deviation = number == 0 ? 0 : (value - mean_) / spread;
    // The memory starts short and grows, so the high initial losses are soon forgotten.
    const double share = 1.0 / double(std::clamp<std::int64_t>(number / 4, 1, options.memory));
    const double border = options.deviations * spread;
    const double step = settled ? std::clamp(value - mean_, -border, border) : value - mean_;
    mean_ += share * step;
    variance_ = (1 - share) * (variance_ + share * step * step);
    return deviation;
  }

 private:
  static constexpr double kNothing = 1e-12;  ///< stands for 0

  std::int64_t seen_ = 0;
  double mean_ = 0, variance_ = 0;
};

/// Compares pictures with the mean of the latest 1,000 (longer than anybody stands still), in up to
/// 32 x 24 cells. One thread; only the constructor allocates.
class ChangedShare {
 public:
  ChangedShare(std::int64_t channels, std::int64_t height, std::int64_t width)
      : channels_(channels),
        height_(height),
        width_(width),
        rows_(std::min(height, kCells * 3 / 4)),
        columns_(std::min(width, kCells)),
        mean_(std::size_t(channels * height * width)),
        cells_(std::size_t(rows_ * columns_)) {}

  /// The share of cells whose mean squared difference exceeds 0.01; then updates the mean.
  /// `picture`: float32 [channels][height][width] in 0..1.
  double see(const float* picture) {
    const float share = 1.0f / float(std::min(++seen_, kMemory));
    std::fill(cells_.begin(), cells_.end(), 0.0f);
    std::size_t at = 0;
    for (std::int64_t c = 0; c < channels_; ++c) {
      for (std::int64_t y = 0; y < height_; ++y) {
        float* const row = cells_.data() + y * rows_ / height_ * columns_;
        for (std::int64_t column = 0; column < columns_; ++column) {
          const std::size_t end =
              at + std::size_t((column + 1) * width_ / columns_ - column * width_ / columns_);
          for (; at < end; ++at) {
            const float off = picture[at] - mean_[at];
            mean_[at] += share * off;
            row[column] += off * off;
          }
        }
      }
    }
    const float much = kMuch * float(mean_.size()) / float(cells_.size());
    const auto changed = std::ranges::count_if(cells_, [&](float sum) { return sum > much; });
    return double(changed) / double(cells_.size());
  }

 private:
  static constexpr std::int64_t kCells = 32;
  static constexpr std::int64_t kMemory = 1000;  ///< frames
  static constexpr float kMuch = 0.01f;          ///< a tenth of full scale, squared

  const std::int64_t channels_, height_, width_;
  const std::int64_t rows_, columns_;
  std::vector<float> mean_, cells_;
  std::int64_t seen_ = 0;
};

struct Sight {
  float loss = 0;
  double changed = -1;     ///< share of the picture that differs from lately; negative: unknown
  std::int64_t frame = 0;  ///< the source's frame number
  double seconds = 0;      ///< capture time
};

/// A frame is unexpected if its loss is far above normal, or far below for several frames (a frozen
/// picture is easy to predict), or if far more of the picture than normal has changed. A lasting
/// change ends its event by itself. One writer, which never allocates or blocks; getters from any
/// thread.
class Novelty {
 public:
  explicit Novelty(NoveltyOptions options = {}) : options_(options) { event_began_ = -1; }

  /// Whether the frame is unexpected. A non-finite loss always is.
  bool see(const Sight& now) {
    const bool settled = seen_++ >= options_.settling;
    if (!std::isfinite(now.loss)) {
      deviation_ = options_.deviations;
      mark(options_.deviations, now);  // the statistics stay unchanged
      return true;
    }
    const double deviation = deviation_of(now);
    const bool unexpected = settled && deviation > options_.deviations;
    deviation_ = settled ? deviation : 0;
    if (unexpected) {
      mark(deviation, now);
      return true;
    }
    unexpected_in_a_row_ = 0;
    if (in_event() && ++usual_in_a_row_ >= options_.calm) {
      in_event_ = false;
      rests_until_ = now.seconds + options_.cooldown;
    }
    return false;
  }

  /// The last frame's deviations from normal; 0 while settling.
  double deviation() const { return deviation_; }
  /// Whether an event is going on: unexpected frames with few expected ones between.
  bool in_event() const { return in_event_; }
  std::int64_t marked() const { return marked_; }
  std::int64_t events() const { return events_; }
  /// The last event's first frame, in the source's numbering; -1: none yet.
  std::int64_t event_began() const { return event_began_; }
  double event_peak() const { return event_peak_; }

 private:
  static constexpr double kLeastChange = 1e-3;  ///< of a picture: less is noise
  static constexpr double kSoon = 0.1;          ///< the newest frame's weight in below_

  double deviation_of(const Sight& now) {
    const double above = loss_.compare(now.loss, options_), most = 2 * options_.deviations;
    below_ += kSoon * (std::clamp(-above, -most, most) - below_);
    double deviation = std::max(above, below_);
    if (now.changed >= 0)
      deviation = std::max(deviation, changed_.compare(now.changed + kLeastChange, options_));
    return deviation;
  }
  void mark(double deviation, const Sight& now) {
    usual_in_a_row_ = 0;
    marked_ += 1;
    if (unexpected_in_a_row_++ == 0) began_ = now.frame;
    if (!in_event()) {
      if (unexpected_in_a_row_ < options_.minimum || now.seconds < rests_until_) return;
      event_began_ = began_;
      event_peak_ = deviation;
      events_ += 1;
      in_event_ = true;
    }
    event_peak_ = std::max(event_peak(), deviation);
  }

  const NoveltyOptions options_;
  std::int64_t seen_ = 0;
  std::int64_t usual_in_a_row_ = 0, unexpected_in_a_row_ = 0;
  std::int64_t began_ = -1;  ///< the first of the current unexpected frames
  double rests_until_ = -1;  ///< no event begins earlier
  double below_ = 0;         ///< running mean of the loss's deviations below normal
  Usual loss_, changed_;
  engine::Counter<double> deviation_, event_peak_;
  engine::Counter<bool> in_event_;
  engine::Counter<std::int64_t> marked_, events_, event_began_;
};

}  // namespace millrace::app
