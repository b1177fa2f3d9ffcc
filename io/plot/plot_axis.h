#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace millrace::io {

/// At most `digits` significant digits, as short as possible: 0.25, 1500, 20k, 1e-5.
inline std::string short_number(double value, int digits = 4) {
  const double size = std::abs(value);
  const bool plain = size >= 1e9 || size < 1e4, millions = !plain && size >= 1e6;
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, plain ? value : value / (millions ? 1e6 : 1e3));
  std::string out = text;
  if (const std::size_t e = out.find('e'); e != out.npos) {
    while (e + 3 < out.size() && out[e + 2] == '0') out.erase(e + 2, 1);
    if (out[e + 1] == '+') out.erase(e + 1, 1);
  }
  return out + (plain ? "" : millions ? "M" : "k");
}

struct Tick {
  double value = 0.0;
  std::string label;
};

class Axis {
 public:
  /// Linear over low .. high with a margin, from 0 if near; about `marks` ticks at 1, 2, 5 x 10^n.
  static Axis linear(double low, double high, int marks, bool air = true) {
    if (!(high > low)) {  // one value or none
      const double around = std::isfinite(low) ? low : 0.0;
      const double room = around == 0.0 ? 1.0 : std::abs(around) * 0.5;
      low = around - room;
      high = around + room;
    }
    Axis axis;
    const double span = high - low;
    axis.low_ = air ? low - 0.04 * span : low;
    axis.high_ = air ? high + 0.04 * span : high;
    if (air && low >= 0.0 && low < 0.4 * high) axis.low_ = 0.0;
    if (air && high <= 0.0 && high > 0.4 * low) axis.high_ = 0.0;
    const double step = nice_step((axis.high_ - axis.low_) / marks);
    const double slack = step * 1e-6;
    for (double n = std::ceil((axis.low_ - slack) / step); n * step <= axis.high_ + slack; ++n) {
      const double value = n == 0.0 ? 0.0 : n * step;
      axis.ticks_.push_back({value, short_number(value, 6)});
    }
    return axis;
  }

  /// Over positive data; a tick per decade, or at 1, 2 and 5 for few decades.
  static Axis logarithmic(double low, double high, int marks) {
    if (!(low > 0.0) || !(high >= low)) low = high = 1.0;
    if (high < low * 2.0) {
      low /= 2.0;
      high *= 2.0;
    }
    Axis axis;
    axis.log_ = true;
    const double air = 0.04 * std::log10(high / low);
    axis.low_ = std::log10(low) - air;
    axis.high_ = std::log10(high) + air;
    const int first = int(std::floor(axis.low_)), last = int(std::ceil(axis.high_));
    const bool few = axis.high_ - axis.low_ < 3.5;
    const int every = std::max(1, (last - first + marks - 1) / marks);
    for (int decade = first; decade <= last; decade += few ? 1 : every) {
      for (const double step : {1.0, 2.0, 5.0}) {
        const double value = step * std::pow(10.0, decade);
        const double place = axis.place(value);
        if ((step == 1.0 || few) && place >= 0.0 && place <= 1.0)
          axis.ticks_.push_back({value, short_number(value, 3)});
      }
    }
    return axis;
  }

  /// In 0 .. 1; NaN for a value that the axis cannot show.
  double place(double value) const {
    if (log_ && !(value > 0.0)) return std::nan("");
    return ((log_ ? std::log10(value) : value) - low_) / (high_ - low_);
  }
  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  /// The least of 1, 2, 5 times a power of ten that is >= `rough`.
  static double nice_step(double rough) {
    const double power = std::pow(10.0, std::floor(std::log10(rough)));
    for (const double step : {1.0, 2.0, 5.0})
      if (step * power >= rough * (1.0 - 1e-9)) return step * power;
    return 10.0 * power;
  }

  double low_ = 0.0;  // logarithms, if `log_`
  double high_ = 1.0;
  bool log_ = false;
  std::vector<Tick> ticks_;
};

}  // namespace millrace::io
