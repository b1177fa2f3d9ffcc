// How much of a picture is not as it was lately.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace millrace::app {

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

}  // namespace millrace::app
