// The ticks of an axis and their labels.
#pragma once

#include <string>
#include <vector>

namespace millrace::io {

struct Tick {
  double value = 0.0;
  std::string label;
};

/// Maps values to 0 .. 1 and knows the marks in between.
class Axis {
 public:
  /// A linear axis over the data low .. high with a little air, and from 0 where that is near;
  /// about `marks` marks at 1, 2 or 5 times a power of ten.
  static Axis linear(double low, double high, int marks, bool air = true);
  /// Over positive data; a mark each decade, at 1, 2 and 5 where there are few of them.
  static Axis logarithmic(double low, double high, int marks);

  double place(double value) const;  ///< NaN where the value has no place
  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  double low_ = 0.0;  // of the logarithm, if logarithmic
  double high_ = 1.0;
  bool log_ = false;
  std::vector<Tick> ticks_;
};

/// A number with at most `digits` significant digits and no useless ones: 0.25, 1500, 20k, 1e-5.
std::string short_number(double value, int digits = 4);

}  // namespace millrace::io
