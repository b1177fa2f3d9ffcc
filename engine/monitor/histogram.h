// A histogram of durations, or of other counts, that one thread writes and any thread reads.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace millrace::engine {

/// Counts by logarithmic buckets, 64 an octave: a percentile is exact to 0.8 %. 1 ns to 73 min; a
/// fixed 20 KiB, so recording never allocates. One writer, any number of readers (who may see a
/// recording in flight half counted; never torn).
class Histogram {
 public:
  void record(std::int64_t ns) {
    ns = ns < 0 ? 0 : ns;
    bump(buckets_[index(std::uint64_t(ns))]);
    bump(count_);
    if (ns > max_.load(std::memory_order_relaxed)) max_.store(ns, std::memory_order_relaxed);
  }

  /// Empties it; by the writer, or while there is none.
  void clear() {
    for (auto& bucket : buckets_) bucket.store(0, std::memory_order_relaxed);
    count_.store(0, std::memory_order_relaxed);
    max_.store(0, std::memory_order_relaxed);
  }

  std::int64_t count() const { return count_.load(std::memory_order_relaxed); }
  std::int64_t max() const { return max_.load(std::memory_order_relaxed); }
  double max_ms() const { return double(max()) * 1e-6; }
  /// The value below which a share `q` in [0, 1] of the recordings lie; 0 if empty.
  double quantile(double q) const {
    const std::int64_t total = count();
    if (total == 0) return 0;
    const auto rank = std::int64_t(q * double(total - 1));
    std::int64_t seen = 0;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      seen += buckets_[i].load(std::memory_order_relaxed);
      if (seen > rank) return middle(i);
    }
    return double(max());
  }
  double quantile_ms(double q) const { return quantile(q) * 1e-6; }
  double median_ms() const { return quantile_ms(0.5); }
  /// Calls `see(nanoseconds, count)` for each bucket with recordings, the shortest first: for
  /// whoever counts in buckets of his own.
  template <class See>
  void each(const See& see) const {
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      const std::int64_t count = buckets_[i].load(std::memory_order_relaxed);
      if (count > 0) see(middle(i), count);
    }
  }

 private:
  static constexpr int kSubBits = 6;
  static constexpr int kOctaves = 37;

  static void bump(std::atomic<std::int64_t>& n) {  // single writer: no read-modify-write needed
    n.store(n.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  static std::size_t index(std::uint64_t ns) {
    constexpr std::uint64_t sub = 1u << kSubBits;
    if (ns < sub) return ns;  // the first octaves are exact
    const int shift = std::bit_width(ns) - 1 - kSubBits;
    const std::size_t i = (std::size_t(shift) << kSubBits) + (ns >> shift);
    return i < kOctaves * sub ? i : kOctaves * sub - 1;
  }
  static double middle(std::size_t i) {
    constexpr std::size_t sub = 1u << kSubBits;
    if (i < sub) return double(i);
    const int shift = int(i >> kSubBits) - 1;
    return (double((i & (sub - 1)) + sub) + 0.5) * double(std::uint64_t(1) << shift);
  }

  std::array<std::atomic<std::int64_t>, kOctaves << kSubBits> buckets_{};
  std::atomic<std::int64_t> count_{0};
  std::atomic<std::int64_t> max_{0};
};

}  // namespace millrace::engine
