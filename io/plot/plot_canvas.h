// What charts are made of: a canvas and axes.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <opencv2/core.hpp>

#include "io/source/frame.h"

namespace millrace::io {

using Point = cv::Point2d;

namespace ink {  // BGR, as in OpenCV
inline const cv::Scalar paper(255, 255, 255);
inline const cv::Scalar text(51, 41, 33);
inline const cv::Scalar muted(128, 114, 102);
inline const cv::Scalar grid(236, 232, 228);
inline const cv::Scalar axis(178, 166, 156);

/// Okabe and Ito's colour-blind safe palette, without yellow, too pale on white.
inline const std::array<cv::Scalar, 7> palette = {
    cv::Scalar(178, 114, 0),   cv::Scalar(0, 94, 213),  cv::Scalar(115, 158, 0),
    cv::Scalar(167, 121, 204), cv::Scalar(0, 159, 230), cv::Scalar(233, 180, 86),
    cv::Scalar(60, 60, 60)};
inline const cv::Scalar& series(std::size_t number) {
  return palette[number % palette.size()];
}
}  // namespace ink

enum class Align { left, centre, right };

/// `size`: height of a capital letter.
struct Lettering {
  double size = 9.0;
  cv::Scalar colour = ink::text;
  Align align = Align::left;
  bool bold = false;
};

/// Lengths are in pixels of the result, drawn at twice the size and averaged down.
class Canvas {
 public:
  Canvas(int width, int height);

  int width() const { return size_.width; }

  void line(Point from, Point to, const cv::Scalar& colour, double thickness = 1.0);
  void path(const std::vector<Point>& points, const cv::Scalar& colour, double thickness,
            bool dashed = false);
  void dot(Point centre, double radius, const cv::Scalar& colour);
  void box(cv::Rect area, const cv::Scalar& colour);
  /// `at` is on the base line. Characters missing from Hershey's fonts get similar ones.
  void text(const std::string& text, Point at, const Lettering& lettering);
  /// Each pixel becomes a `factor` x `factor` square.
  void picture(const Frame& frame, cv::Point at, int factor);

  std::string png() const;

  static double text_width(const std::string& text, double size, bool bold = false);

 private:
  cv::Size size_;
  cv::Mat sheet_;  // at twice the size
};

/// `text`, cut with ".." to be at most `width` wide.
std::string fitted(const std::string& text, double width, double size, bool bold = false);

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

  double place(double value) const;  ///< in 0 .. 1; NaN if it has none
  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  double low_ = 0.0;  // of the logarithm, if logarithmic
  double high_ = 1.0;
  bool log_ = false;
  std::vector<Tick> ticks_;
};

/// At most `digits` significant digits, as short as possible: 0.25, 1500, 20k, 1e-5.
std::string short_number(double value, int digits = 4);

}  // namespace millrace::io
