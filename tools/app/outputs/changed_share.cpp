#include "tools/app/outputs/changed_share.h"

#include <algorithm>

namespace millrace::app {
namespace {

constexpr std::int64_t kCells = 32;     // a side
constexpr std::int64_t kMemory = 1000;  // frames
constexpr float kMuch = 0.01f;          // a tenth of full scale

}  // namespace

ChangedShare::ChangedShare(std::int64_t channels, std::int64_t height, std::int64_t width)
    : channels_(channels),
      height_(height),
      width_(width),
      rows_(std::min(height, kCells * 3 / 4)),
      columns_(std::min(width, kCells)),
      mean_(std::size_t(channels * height * width)),
      cells_(std::size_t(rows_ * columns_)) {}

double ChangedShare::see(const float* picture) {
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

}  // namespace millrace::app
