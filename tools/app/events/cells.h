// The grid of cells that event detectors share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

namespace millrace::app {

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
  void add(bool settled) { record_.add(lasting_, settled); }

 private:
  const int looks_;
  Record record_;
  float latest_[10] = {};
  float lasting_ = 0;
};

}  // namespace millrace::app
