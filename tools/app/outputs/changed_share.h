// How much of a picture is not as it was lately.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace::app {

/// Compares pictures with the mean of the latest 1,000 (longer than anybody stands still), by cells
/// of about 1/32 of a side. One thread; only the constructor allocates.
class ChangedShare {
 public:
  ChangedShare(std::int64_t channels, std::int64_t height, std::int64_t width);

  /// The share of cells whose mean squared difference is above 0.01; then the mean follows.
  /// `picture`: float32 [channels][height][width] in 0..1.
  double see(const float* picture);

 private:
  const std::int64_t channels_, height_, width_;
  const std::int64_t rows_, columns_;  ///< of cells
  std::vector<float> mean_, cells_;
  std::int64_t seen_ = 0;
};

}  // namespace millrace::app
