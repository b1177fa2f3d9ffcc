#include "tools/app/events/background.h"

#include <cmath>

namespace millrace::app {
namespace {

constexpr int kMostWide = 160, kMostHigh = 120, kCell = 4;

constexpr float kLeastDifference = 9;  ///< levels; smaller differences are never a change
constexpr float kOverNoise = 3;        ///< times the cell's usual difference is a change
constexpr float kDiffers = 20;
constexpr float kCommonLight = 110;  ///< mean level; in darker pictures smaller differences count
constexpr float kLeastLight = 50;    ///< darker counts as this
constexpr float kRecent = 0.3f;      ///< weight of a look in the mean of the last few
constexpr float kMoves = 2, kLeastMotion = 10;  ///< over the cell's noise, plus levels squared
constexpr float kDark = 2;                      ///< keeps ratios of dark levels finite

constexpr int kAverage = 30;             ///< looks that are averaged at the start
constexpr float kStep = 0.1f;            ///< levels a pixel may follow, from 600 looks on
constexpr float kHaste = 60, kRate = 6;  ///< faster at the start: divided by the age
constexpr float kShare = 0.02f;          ///< followed share of a difference
constexpr float kDaylight = 0.005f;      ///< change of the common gain that is followed in a look

float median(std::vector<float>& values) {
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Mean over channels and pixels of `value(index into levels)` for each cell.
template <class Value>
void mean_of_cells(const Reduced& like, Cells& out, const Value& value) {
  out.fill(0);
  for (int c = 0; c < like.channels; ++c) {
    for (int y = 0; y < like.height; ++y) {
      std::size_t at = std::size_t(c) * like.pixels() + std::size_t(y * like.width);
      float* const row = &out.values[std::size_t(y / like.cell * like.columns)];
      for (int column = 0; column < like.columns; ++column) {
        float sum = 0;
        for (int x = 0; x < like.cell; ++x) sum += value(at++);
        row[column] += sum;
      }
    }
  }
  const float count = float(like.channels * like.cell * like.cell);
  for (float& sum : out.values) sum /= count;
}

}  // namespace

Reduced::Reduced(int of_channels, int high, int wide)
    : channels(std::min(of_channels, 3)),
      factor(std::max({1, (wide + kMostWide - 1) / kMostWide, (high + kMostHigh - 1) / kMostHigh})),
      cell(std::min(high, wide) / factor >= 4 * kCell ? kCell : 1),
      rows(std::max(1, high / factor / cell)),
      columns(std::max(1, wide / factor / cell)),
      height(rows * cell),
      width(columns * cell),
      full_height(high),
      full_width(wide),
      levels(std::size_t(channels * height * width)) {}

void Reduced::take(const float* picture) {
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

Background::Background(const Reduced& like)
    : levels_(like.levels.size()),
      recent_(like.levels.size()),
      difference_(like.rows, like.columns),
      noise_(like.rows, like.columns, 4),
      changed_(like.rows, like.columns),
      moving_(like.rows, like.columns),
      light_(like.rows, like.columns),
      usual_light_(like.rows, like.columns),
      scratch_(difference_.size()) {}

bool Background::differs(const Reduced& now, std::size_t pixel) const {
  const float least = kDiffers / std::max(1.0f, exposure_);
  for (int c = 0; c < now.channels; ++c) {
    const std::size_t at = std::size_t(c) * now.pixels() + pixel;
    if (std::abs(now.levels[at] - gain_ * levels_[at]) > least) return true;
  }
  return false;
}

void Background::see(const Reduced& now) {
  if (age_ == 0) levels_ = now.levels;
  see_motion(now);
  compare(now);
  follow(now);
  ++age_;
  ++seen_;
}

void Background::see_motion(const Reduced& now) {
  mean_of_cells(now, moving_, [&](std::size_t i) {
    const float off = now.levels[i] - recent_[i];
    recent_[i] += kRecent * off;
    return off * off;
  });
  for (std::size_t i = 0; i < moving_.size(); ++i)
    moving_[i] = moving_[i] > kMoves * noise_[i] + kLeastMotion ? 1.0f : 0.0f;
}

void Background::compare(const Reduced& now) {
  mean_of_cells(now, light_, [&](std::size_t i) { return now.levels[i]; });
  mean_of_cells(now, usual_light_, [&](std::size_t i) { return levels_[i]; });
  float brightness = 0;
  for (std::size_t i = 0; i < scratch_.size(); ++i) {
    scratch_[i] = (light_[i] + kDark) / (usual_light_[i] + kDark);
    brightness += usual_light_[i] / float(scratch_.size());
  }
  exposure_ = kCommonLight / std::max(kLeastLight, brightness);
  gain_ = median(scratch_);
  mean_of_cells(now, difference_, [&](std::size_t i) {
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

void Background::follow(const Reduced& now) {
  const float age = float(age_),
              share = age_ < kAverage ? 1 / (age + 1) : std::max(kShare, kRate / age),
              most = age_ < kAverage ? 255.0f : std::max(kStep, kHaste / age), light = 1 / gain_,
              brighter = 1 + std::clamp(gain_ - 1, -kDaylight, kDaylight);
  for (std::size_t i = 0; i < levels_.size(); ++i) {
    const float off = (now.levels[i] - gain_ * levels_[i]) * light;
    levels_[i] = (levels_[i] + std::clamp(share * off, -most, most)) * brighter;
  }
}

}  // namespace millrace::app
