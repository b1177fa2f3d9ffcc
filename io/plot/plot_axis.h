#pragma once

#include <string>
#include <vector>

namespace millrace::io {

struct Tick {
  double value = 0.0;
  std::string label;
};

class Axis {
 public:
  /// Linear over low .. high with a margin, from 0 if near; about `marks` ticks at 1, 2, 5 x 10^n.
  static Axis linear(double low, double high, int marks, bool air = true);
  /// Over positive data; a tick per decade, or at 1, 2 and 5 for few decades.
  static Axis logarithmic(double low, double high, int marks);

  double place(double value) const;  ///< in 0 .. 1; NaN for a value that the axis cannot show
  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  double low_ = 0.0;  // logarithms, if `log_`
  double high_ = 1.0;
  bool log_ = false;
  std::vector<Tick> ticks_;
};

/// At most `digits` significant digits, as short as possible: 0.25, 1500, 20k, 1e-5.
std::string short_number(double value, int digits = 4);

}  // namespace millrace::io
