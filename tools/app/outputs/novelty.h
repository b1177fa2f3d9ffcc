// Marks frames that are not as usual.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/monitor/histogram.h"  // Counter

namespace millrace::app {

struct NoveltyOptions {
  double deviations = 4.0;        ///< from the mean, from which a frame is unexpected
  std::int64_t minimum = 1;       ///< unexpected frames in a row that make an event
  double cooldown = 0;            ///< seconds from an event's end in which none begins
  std::int64_t memory = 1000;     ///< frames that "usual" covers
  std::int64_t settling = 300;    ///< frames at the start that are never marked
  std::int64_t calm = 25;         ///< usual frames in a row that end an event
  double least_deviation = 0.05;  ///< of a logarithm; at 4, 5 % off is never unexpected
};

/// The running mean and deviation of a number's logarithm: the numbers are skewed, and fall by
/// decades during learning. An outlier is clamped to the threshold, so one strange frame does not
/// make the next one usual. What lasts becomes usual.
class Usual {
 public:
  /// How many deviations `value` is above the usual, which then follows it.
  double compare(double value, const NoveltyOptions& options) {
    const std::int64_t number = seen_++;
    const bool settled = number >= options.settling;
    value = std::log(std::max(value, kNothing));
    const double spread = std::max(std::sqrt(variance_), options.least_deviation);
    const double deviation = number == 0 ? 0 : (value - mean_) / spread;
    // The memory starts short and grows, so that the high losses of the beginning are soon
    // forgotten.
    const double share = 1.0 / double(std::clamp<std::int64_t>(number / 4, 1, options.memory));
    const double border = options.deviations * spread;
    const double step = settled ? std::clamp(value - mean_, -border, border) : value - mean_;
    mean_ += share * step;
    variance_ = (1 - share) * (variance_ + share * step * step);
    return deviation;
  }

 private:
  static constexpr double kNothing = 1e-12;  ///< stands for 0, which has no logarithm

  std::int64_t seen_ = 0;
  double mean_ = 0, variance_ = 0;
};

/// Compares pictures with the mean of the latest 1,000 (longer than anybody stands still), by cells
/// of about 1/32 of a side. One thread; only the constructor allocates.
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

  /// The share of cells whose mean squared difference is above 0.01; then the mean follows.
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
  static constexpr std::int64_t kCells = 32;     ///< a side
  static constexpr std::int64_t kMemory = 1000;  ///< frames
  static constexpr float kMuch = 0.01f;          ///< a tenth of full scale

  const std::int64_t channels_, height_, width_;
  const std::int64_t rows_, columns_;  ///< of cells
  std::vector<float> mean_, cells_;
  std::int64_t seen_ = 0;
};

/// What is seen of a frame.
struct Sight {
  float loss = 0;
  double changed = -1;  ///< the share of the picture that is not as it was lately; below 0: unknown
  std::int64_t frame = 0;  ///< the frame's number at the source
  double seconds = 0;      ///< when it was filmed
};

/// A frame is unexpected if its loss is far above the usual, or for some frames far below (a frozen
/// picture is easy to predict), or if far more of the picture than usual has changed. If a scene
/// stays changed, its event ends by itself. One writer, which never allocates or blocks; getters
/// from any thread.
class Novelty {
 public:
  explicit Novelty(NoveltyOptions options = {}) : options_(options) { event_began_ = -1; }

  /// Whether the frame is unexpected. One whose loss is not finite is.
  bool see(const Sight& now) {
    const bool settled = seen_++ >= options_.settling;
    if (!std::isfinite(now.loss)) {
      deviation_ = options_.deviations;
      mark(options_.deviations, now);  // the usual stays as it is
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

  /// The last frame's deviations from the usual; 0 while settling.
  double deviation() const { return deviation_; }
  /// Whether an event is going on: unexpected frames with few usual ones between.
  bool in_event() const { return in_event_; }
  std::int64_t marked() const { return marked_; }
  std::int64_t events() const { return events_; }
  /// The last event's first frame, by its number at the source; -1: none yet.
  std::int64_t event_began() const { return event_began_; }
  /// The largest deviation in the last event.
  double event_peak() const { return event_peak_; }

 private:
  static constexpr double kLeastChange = 1e-3;  ///< of a picture: less is noise
  static constexpr double kSoon = 0.1;  ///< share of the newest frame in what is below the usual

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
  std::int64_t began_ = -1;  ///< the first of the unexpected frames in a row
  double rests_until_ = -1;  ///< no event begins before
  double below_ = 0;         ///< running mean of the loss's deviations below the usual
  Usual loss_, changed_;
  engine::Counter<double> deviation_, event_peak_;
  engine::Counter<bool> in_event_;
  engine::Counter<std::int64_t> marked_, events_, event_began_;
};

}  // namespace millrace::app
