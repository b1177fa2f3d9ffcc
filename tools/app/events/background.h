#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

namespace millrace::app {

/// A value for each square of a picture.
struct Cells {
  Cells() = default;
  Cells(int rows, int columns, float value = 0)
      : rows(rows), columns(columns), values(std::size_t(rows * columns), value) {}

  float& at(int row, int column) { return values[std::size_t(row * columns + column)]; }
  float at(int row, int column) const { return values[std::size_t(row * columns + column)]; }
  float& operator[](std::size_t i) { return values[i]; }
  float operator[](std::size_t i) const { return values[i]; }
  std::size_t size() const { return values.size(); }
  void fill(float value) { std::ranges::fill(values, value); }

  int rows = 0, columns = 0;
  std::vector<float> values;
};

/// Combines each cell with its up to eight neighbours. `out` is another grid of the same size.
template <class Join>
void combine_neighbours(const Cells& in, Cells& out, const Join& join) {
  for (int y = 0; y < in.rows; ++y) {
    for (int x = 0; x < in.columns; ++x) {
      float all = in.at(y, x);
      for (int v = std::max(0, y - 1); v <= std::min(in.rows - 1, y + 1); ++v) {
        for (int u = std::max(0, x - 1); u <= std::min(in.columns - 1, x + 1); ++u)
          if (v != y || u != x) all = join(all, in.at(v, u));
      }
      out.at(y, x) = all;
    }
  }
}

inline void largest_nearby(const Cells& in, Cells& out) {
  combine_neighbours(in, out, [](float a, float b) { return std::max(a, b); });
}

inline void sum_nearby(const Cells& in, Cells& out) {
  combine_neighbours(in, out, [](float a, float b) { return a + b; });
}

/// The highest score that turned out to be usual. It fades as (age at the score / age now)^power,
/// since first sights become rare as a stream goes on, up to an age of `memory` looks; then
/// exponentially. The limit for an event lies above it, so a busy scene needs a stronger reason
/// than a quiet one, and each event raises the limit for the next.
class Record {
 public:
  /// `margin`: ratio of the limit to the highest score.
  Record(float floor, double power, float margin) : floor_(floor), power_(power), margin_(margin) {}

  float limit() const { return std::max(floor_, margin_ * peak_); }
  /// Adds a score that ended without an event, or that raised one: counts up to the limit.
  void add(float score, bool settled) {
    peak_ = std::max(peak_, settled ? std::min(score, limit()) : score);
  }
  void fade(double age, double memory) {
    peak_ *= float(std::max(0.0, 1 - power_ / std::clamp(age, 1.0, memory)));
  }

 private:
  const float floor_;
  const double power_;
  const float margin_;
  float peak_ = 0;
};

/// A sign that must last for some looks: the least of these over its record. 1: an event.
class LastingSign {
 public:
  /// `looks`: at most 10.
  LastingSign(int looks, Record record) : looks_(looks), record_(record) {}

  /// `counts`: whether a sign that ends becomes usual; false during the event that it began.
  float see(float sign, bool counts, double age, bool settled, double memory) {
    std::shift_right(std::begin(latest_), std::end(latest_), 1);
    latest_[0] = sign;
    const float before = lasting_;
    lasting_ = std::max(0.0f, *std::min_element(latest_, latest_ + looks_));
    if (lasting_ < before && counts) record_.add(before, settled);
    record_.fade(age, memory);
    return lasting_ / record_.limit();
  }
  /// An event has begun.
  void add() { record_.add(lasting_, true); }

 private:
  const int looks_;
  Record record_;
  float latest_[10] = {};
  float lasting_ = 0;
};

/// Whether what comes now is news: once the stream is `full` looks old; earlier, if nothing has
/// come for `least` looks and a third of the time so far, or if at least `least` looks, and more
/// than `share` of all, had no sign. While something comes, as it was before, for as long.
class Settling {
 public:
  Settling(double least, double full, double share = 1)
      : least_(std::int64_t(least)), full_(full), share_(share) {}

  /// `sign`: whether this look shows more than the stream does at rest.
  void see(bool sign) {
    signs_ = kForget * signs_ + (sign ? 1.0f : 0.0f);
    const bool comes = signs_ >= kFlicker;
    const std::int64_t rest = ++looks_ - last_;
    if (comes && rest > kPause) {
      began_ = looks_;
      rested_ = rest;
    }
    if (comes) last_ = looks_;
    calm_ += sign ? 0 : 1;
    if (old())
      settled_ = true;
    else if (rest > kPause && !comes)
      settled_ = rest >= std::max(least_, looks_ / 3) ||
                 (calm_ >= least_ && double(calm_) > share_ * double(looks_));
    else if (looks_ - began_ > rested_)
      settled_ = false;
  }
  bool settled() const { return settled_; }
  bool old() const { return double(looks_) > full_; }
  std::int64_t looks() const { return looks_; }

 private:
  static constexpr float kForget = 0.9f, kFlicker = 2.5f;  ///< three signs within about ten looks
  static constexpr std::int64_t kPause = 15;  ///< looks without anything that end what came

  const std::int64_t least_;
  const double full_, share_;
  std::int64_t looks_ = 0, last_ = 0, began_ = 0, rested_ = 0;
  std::int64_t calm_ = 0;  ///< looks without a sign
  float signs_ = 0;
  bool settled_ = false;
};

/// A picture in levels 0..255, planar, at most 160 x 120 pixels: each averages a square of the
/// sample's pixels; cut to whole cells.
struct Reduced {
  static constexpr int kMostWide = 160, kMostHigh = 120, kCell = 4;

  /// For pictures [channels][height][width]; the first three channels are used.
  Reduced(int of_channels, int high, int wide)
      : channels(std::min(of_channels, 3)),
        factor(
            std::max({1, (wide + kMostWide - 1) / kMostWide, (high + kMostHigh - 1) / kMostHigh})),
        cell(std::min(high, wide) / factor >= 4 * kCell ? kCell : 1),
        rows(std::max(1, high / factor / cell)),
        columns(std::max(1, wide / factor / cell)),
        height(rows * cell),
        width(columns * cell),
        full_height(high),
        full_width(wide),
        levels(std::size_t(channels * height * width)) {}
  /// `picture`: float32 in 0..1. Non-finite values count as 0.
  void take(const float* picture) {
    const float scale = 255.0f / float(factor * factor);
    std::size_t to = 0;
    for (int c = 0; c < channels; ++c) {
      const float* const plane = picture + std::size_t(c) * std::size_t(full_height * full_width);
      for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x) {
          float sum = 0;
          for (int v = y * factor; v < std::min((y + 1) * factor, full_height); ++v)
            for (int u = x * factor; u < std::min((x + 1) * factor, full_width); ++u)
              sum += plane[v * full_width + u];
          levels[to++] = std::isfinite(sum) ? std::clamp(sum * scale, 0.0f, 255.0f) : 0;
        }
      }
    }
  }

  std::size_t pixels() const { return std::size_t(height * width); }
  float level(int channel, std::size_t pixel) const {
    return levels[std::size_t(channel) * pixels() + pixel];
  }
  /// Mean over channels and pixels of `value(index into levels)` for each cell.
  template <class Value>
  void mean_of_cells(Cells& out, const Value& value) const {
    out.fill(0);
    for (int c = 0; c < channels; ++c) {
      for (int y = 0; y < height; ++y) {
        std::size_t at = std::size_t(c) * pixels() + std::size_t(y * width);
        float* const row = &out.values[std::size_t(y / cell * columns)];
        for (int column = 0; column < columns; ++column) {
          float sum = 0;
          for (int x = 0; x < cell; ++x) sum += value(at++);
          row[column] += sum;
        }
      }
    }
    const float count = float(channels * cell * cell);
    for (float& sum : out.values) sum /= count;
  }

  int channels, factor, cell;  ///< pixels of the picture a side; pixels of this a cell's side
  int rows, columns;           ///< cells
  int height, width;
  const int full_height, full_width;  ///< the picture's size
  std::vector<float> levels;
};

/// Follows each pixel's usual level: fast enough for daylight and clouds, which change all pixels
/// slowly; too slow for passing objects, since a pixel moves by a tenth of a level at most. An
/// object that stays becomes background in about a minute. Compares without the gain that all cells
/// share. One thread; only the constructor allocates.
class Background {
 public:
  explicit Background(const Reduced& like)
      : levels_(like.levels.size()),
        recent_(like.levels.size()),
        difference_(like.rows, like.columns),
        noise_(like.rows, like.columns, 4),
        changed_(like.rows, like.columns),
        moving_(like.rows, like.columns),
        light_(like.rows, like.columns),
        usual_light_(like.rows, like.columns),
        scratch_(difference_.size()) {}

  /// Compares `now` with the background, then follows it.
  void see(const Reduced& now) {
    if (age_ == 0) levels_ = now.levels;
    see_motion(now);
    compare(now);
    follow(now);
    ++age_;
    ++seen_;
  }
  /// Takes the next picture as the background, after a change of scene.
  void restart() {
    if (!young()) before_ = levels_;
    age_ = 0;
  }
  /// Whether `now` is the scene before the last restart, which is then the background again, once.
  bool returns(const Reduced& now) {
    constexpr float kOther = 0.15f;  // share of cells that differ: another scene
    if (before_.empty()) return false;
    std::swap(levels_, before_);
    compare(now);
    if (share_changed() < kOther) {
      before_.clear();
      age_ = std::max(age_, kYoung + 1);
      return true;
    }
    std::swap(levels_, before_);
    compare(now);
    return false;
  }
  int age() const { return age_; }               ///< looks since the start
  bool young() const { return age_ <= kYoung; }  ///< too much for events at places

  /// Light of the picture over that of the background.
  float gain() const { return gain_; }
  /// gain(), but at most twice the change of the picture's mean (as logarithms): a camera that
  /// exposes less because something bright came holds the mean.
  float light() const {
    const float most = 2 * std::log(mean_gain_);
    return std::exp(std::clamp(std::log(gain_), std::min(0.0f, most), std::max(0.0f, most)));
  }
  /// Mean squared difference of each cell.
  const Cells& difference() const { return difference_; }
  /// 1 for each cell that differs by more than its noise, else 0.
  const Cells& changed() const { return changed_; }
  /// 1 for each cell that differs from the mean of the last few looks, else 0.
  const Cells& moving() const { return moving_; }
  float typical_difference() const { return typical_; }  ///< the median of all cells
  /// Whether a pixel of the latest picture differs.
  bool differs(const Reduced& now, std::size_t pixel) const {
    const float least = kDiffers / std::max(1.0f, exposure_);
    for (int c = 0; c < now.channels; ++c) {
      const std::size_t at = std::size_t(c) * now.pixels() + pixel;
      if (std::abs(now.levels[at] - gain_ * levels_[at]) > least) return true;
    }
    return false;
  }
  const std::vector<float>& levels() const { return levels_; }
  /// Factor that scales levels to a common light.
  float exposure() const { return exposure_; }

 private:
  static constexpr float kLeastDifference = 9;  ///< levels; smaller differences are never a change
  static constexpr float kOverNoise = 3;        ///< times the cell's usual difference is a change
  static constexpr float kDiffers = 20;
  /// Mean level; in darker pictures smaller differences count. Darker than the second counts as it.
  static constexpr float kCommonLight = 110, kLeastLight = 50;
  static constexpr float kRecent = 0.3f;  ///< weight of a look in the mean of the last few
  /// Over the cell's noise, plus levels squared.
  static constexpr float kMoves = 2, kLeastMotion = 10;
  static constexpr float kDark = 2;  ///< keeps ratios of dark levels finite

  static constexpr int kAverage = 30, kYoung = 60;  ///< looks: averaged at the start; see young()
  static constexpr float kStep = 0.1f;            ///< levels a pixel may follow, from 600 looks on
  static constexpr float kHaste = 60, kRate = 6;  ///< faster at the start: divided by the age
  static constexpr float kShare = 0.02f;          ///< followed share of a difference
  /// Change of the common gain that is followed in a look.
  static constexpr float kDaylight = 0.005f;

  static float median(std::vector<float>& values) {
    const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  }
  void compare(const Reduced& now) {
    now.mean_of_cells(light_, [&](std::size_t i) { return now.levels[i]; });
    now.mean_of_cells(usual_light_, [&](std::size_t i) { return levels_[i]; });
    float brightness = 0, brightness_now = 0;
    for (std::size_t i = 0; i < scratch_.size(); ++i) {
      scratch_[i] = (light_[i] + kDark) / (usual_light_[i] + kDark);
      brightness += usual_light_[i] / float(scratch_.size());
      brightness_now += light_[i] / float(scratch_.size());
    }
    mean_gain_ = (brightness_now + kDark) / (brightness + kDark);
    exposure_ = kCommonLight / std::max(kLeastLight, brightness);
    gain_ = median(scratch_);
    now.mean_of_cells(difference_, [&](std::size_t i) {
      const float off = now.levels[i] - gain_ * levels_[i];
      return off * off;
    });
    const float share = std::max(1.0f / float(seen_ + 1), 0.003f),
                least = std::pow(kLeastDifference / std::max(1.0f, exposure_), 2.0f);
    for (std::size_t i = 0; i < scratch_.size(); ++i) {
      const float off = difference_[i];
      changed_[i] = off > std::max(least, kOverNoise * noise_[i]) ? 1.0f : 0.0f;
      noise_[i] += share * (std::min(off, 4 * noise_[i] + 4) - noise_[i]);
    }
    scratch_ = difference_.values;
    typical_ = median(scratch_);
  }
  void see_motion(const Reduced& now) {
    now.mean_of_cells(moving_, [&](std::size_t i) {
      const float off = now.levels[i] - recent_[i];
      recent_[i] += kRecent * off;
      return off * off;
    });
    for (std::size_t i = 0; i < moving_.size(); ++i)
      moving_[i] = moving_[i] > kMoves * noise_[i] + kLeastMotion ? 1.0f : 0.0f;
  }
  void follow(const Reduced& now) {
    const float age = float(age_),
                share = age_ < kAverage ? 1 / (age + 1) : std::max(kShare, kRate / age),
                most = age_ < kAverage ? 255.0f : std::max(kStep, kHaste / age), light = 1 / gain_,
                brighter = 1 + std::clamp(gain_ - 1, -kDaylight, kDaylight);
    for (std::size_t i = 0; i < levels_.size(); ++i) {
      const float off = (now.levels[i] - gain_ * levels_[i]) * light;
      levels_[i] = (levels_[i] + std::clamp(share * off, -most, most)) * brighter;
    }
  }

  float share_changed() const {
    return std::accumulate(changed_.values.begin(), changed_.values.end(), 0.0f) /
           float(changed_.size());
  }

  std::vector<float> levels_, recent_;  ///< recent_: the mean of the last few looks
  std::vector<float> before_;           ///< the scene before the last restart; empty: none
  Cells difference_, noise_, changed_, moving_, light_, usual_light_;
  std::vector<float> scratch_;
  int age_ = 0;
  std::int64_t seen_ = 0;
  float gain_ = 1, mean_gain_ = 1, typical_ = 0, exposure_ = 1;
};

}  // namespace millrace::app
