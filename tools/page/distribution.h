// Durations counted by size: what percentiles, loads and Prometheus' histograms are read off.
#pragma once

#include <algorithm>  // clamp
#include <array>      // buckets
#include <cmath>      // logarithm
#include <cstdint>    // counts

namespace millrace::io {

/// Counts by logarithmic bucket, 16 an octave from 1 us to 268 s: a percentile is exact to 4 %.
/// A plain value of 4 KiB. Two of them, taken at two moments, subtract to what came in between.
class Distribution {
 public:
  static constexpr int kPerOctave = 16;
  static constexpr int kOctaves = 28;
  static constexpr double kLeast = 1e-6;  ///< seconds; what is shorter counts as this long

  void add(double seconds, std::int64_t count = 1) {
    counts_[bucket(seconds)] += count;
    total_ += count;
    sum_ += seconds * double(count);
  }
  Distribution& operator-=(const Distribution& before) {
    for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] -= before.counts_[i];
    total_ -= before.total_;
    sum_ -= before.sum_;
    return *this;
  }

  std::int64_t total() const { return total_; }
  double sum() const { return sum_; }  ///< seconds

  /// Seconds below which a share `q` in [0, 1] lies; 0 if empty.
  double quantile(double q) const {
    if (total_ <= 0) return 0;
    const auto rank = std::int64_t(q * double(total_ - 1));
    std::int64_t seen = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      if (seen + counts_[i] > rank) {
        const double within = (double(rank - seen) + 0.5) / double(counts_[i]);
        return kLeast * std::exp2((double(i) - 1 + within) / kPerOctave);
      }
      seen += counts_[i];
    }
    return bound(kOctaves);
  }

  /// Seconds at the upper end of an octave, 0..kOctaves, and how many lie at or below it.
  static double bound(int octave) { return kLeast * std::exp2(octave); }
  std::int64_t at_most(int octave) const {
    std::int64_t seen = 0;
    for (int i = 0; i <= octave * kPerOctave; ++i) seen += counts_[std::size_t(i)];
    return seen;
  }

 private:
  // Bucket i holds what is above the bound of i - 1 and at most that of i.
  static std::size_t bucket(double seconds) {
    if (!(seconds > kLeast)) return 0;
    const double i = std::ceil(std::log2(seconds / kLeast) * kPerOctave - 1e-9);
    return std::size_t(std::clamp(i, 0.0, double(kPerOctave * kOctaves + 1)));
  }

  std::array<std::int64_t, kPerOctave * kOctaves + 2> counts_{};  ///< the last one: longer
  std::int64_t total_ = 0;
  double sum_ = 0;
};

}  // namespace millrace::io
