#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace millrace::engine {

/// A series of any length in fixed memory: at most `most` points (even), each the mean of equally
/// many consecutive rows. When it is full, neighbours are averaged, and each point then stands for
/// twice as many rows. Never allocates after construction. Not thread-safe.
template <std::size_t kColumns>
class Downsampled {
 public:
  using Row = std::array<double, kColumns>;

  explicit Downsampled(std::size_t most) : most_(most) { points_.reserve(most); }

  void add(const Row& row) {
    for (std::size_t k = 0; k < kColumns; ++k) open_[k] += row[k];
    if (++filled_ < width_) return;
    if (points_.size() == most_) halve();
    if (filled_ < width_) return;
    for (double& sum : open_) sum /= double(width_);
    points_.push_back(open_);
    open_ = {};
    filled_ = 0;
  }

  const std::vector<Row>& points() const { return points_; }
  std::size_t width() const { return width_; }  ///< rows a point stands for

 private:
  void halve() {
    for (std::size_t i = 0; i < most_ / 2; ++i) {
      for (std::size_t k = 0; k < kColumns; ++k)
        points_[i][k] = (points_[2 * i][k] + points_[2 * i + 1][k]) / 2;
    }
    points_.resize(most_ / 2);
    width_ *= 2;
  }

  const std::size_t most_;
  std::vector<Row> points_;
  Row open_{};  ///< sums of the point being filled
  std::size_t width_ = 1, filled_ = 0;
};

}  // namespace millrace::engine
