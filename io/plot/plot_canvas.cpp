#include "io/plot/plot_canvas.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <stdexcept>

#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

namespace millrace::io {
namespace {

constexpr int kZoom = 2;
constexpr int kShift = 4;          // OpenCV's fixed point: 1/16 pixel
constexpr double kCapital = 21.0;  // of Hershey capitals at scale 1
constexpr int kFont = cv::FONT_HERSHEY_DUPLEX;

cv::Point fixed(Point p) {
  // OpenCV counts from pixel centres, the canvas from pixel corners.
  const auto one = [](double v) { return int(std::lround((v * kZoom - 0.5) * (1 << kShift))); };
  return {one(p.x), one(p.y)};
}

int thick(double width) {
  return std::max(1, int(std::lround(width * kZoom)));
}
double scale_of(double size) {
  return size * kZoom / kCapital;
}
int weight_of(double size, bool bold) {
  return std::max(1, int(std::lround(size * kZoom / (bold ? 12.0 : 15.0))));
}

// Length in bytes of the UTF-8 character at `at`.
std::size_t character_length(const std::string& text, std::size_t at) {
  std::size_t end = at + 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) ++end;
  return end - at;
}

std::string in_ascii(const std::string& text) {
  static const std::map<std::string, std::string> alike = {{"×", "x"}, {"µ", "u"}, {"μ", "u"},
                                                           {"–", "-"}, {"—", "-"}, {"−", "-"},
                                                           {"·", "."}, {"→", "->"}};
  std::string out;
  for (std::size_t at = 0, length; at < text.size(); at += length) {
    length = character_length(text, at);
    const std::string letter = text.substr(at, length);
    const auto found = alike.find(letter);
    out += length == 1 ? letter : found == alike.end() ? "?" : found->second;
  }
  return out;
}

// The least of 1, 2, 5 times a power of ten that is >= `rough`.
double nice_step(double rough) {
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (step * power >= rough * (1.0 - 1e-9)) return step * power;
  }
  return 10.0 * power;
}

std::string plain(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  std::string out = text;
  // "1e-05" to "1e-5".
  const std::size_t e = out.find('e');
  if (e != std::string::npos) {
    std::size_t zeros = e + 2;
    while (zeros + 1 < out.size() && out[zeros] == '0') out.erase(zeros, 1);
    if (out[e + 1] == '+') out.erase(e + 1, 1);
  }
  return out;
}

}  // namespace

Canvas::Canvas(int width, int height)
    : size_(width, height), sheet_(size_ * kZoom, CV_8UC3, ink::paper) {}

void Canvas::line(Point from, Point to, const cv::Scalar& colour, double thickness) {
  cv::line(sheet_, fixed(from), fixed(to), colour, thick(thickness), cv::LINE_AA, kShift);
}

void Canvas::path(const std::vector<Point>& points, const cv::Scalar& colour, double thickness,
                  bool dashed) {
  if (points.empty()) return;
  if (!dashed) {
    std::vector<cv::Point> fixed_points(points.size());
    std::transform(points.begin(), points.end(), fixed_points.begin(), fixed);
    cv::polylines(sheet_, fixed_points, false, colour, thick(thickness), cv::LINE_AA, kShift);
    return;
  }
  // Dashes of eight pixels with gaps of six, continued round corners.
  constexpr double on = 8.0, period = 14.0;
  double travelled = 0.0;
  for (std::size_t i = 1; i < points.size(); ++i) {
    const Point along = points[i] - points[i - 1];
    const double length = std::hypot(along.x, along.y);
    for (double at = 0.0; at < length;) {
      const double phase = std::fmod(travelled, period);
      const double step = std::min(length - at, phase < on ? on - phase : period - phase) + 1e-9;
      if (phase < on) {
        line(points[i - 1] + along * (at / length),
             points[i - 1] + along * (std::min(at + step, length) / length), colour, thickness);
      }
      at += step;
      travelled += step;
    }
  }
}

void Canvas::dot(Point centre, double radius, const cv::Scalar& colour) {
  cv::circle(sheet_, fixed(centre), int(radius * kZoom * (1 << kShift)), colour, cv::FILLED,
             cv::LINE_AA, kShift);
}

void Canvas::box(cv::Rect area, const cv::Scalar& colour) {
  cv::rectangle(sheet_, cv::Rect(area.tl() * kZoom, area.size() * kZoom), colour, cv::FILLED);
}

void Canvas::text(const std::string& text, Point at, const Lettering& lettering) {
  const double length = text_width(text, lettering.size, lettering.bold);
  if (lettering.align == Align::centre) at.x -= length / 2.0;
  if (lettering.align == Align::right) at.x -= length;
  cv::putText(sheet_, in_ascii(text), Point(at.x * kZoom, at.y * kZoom), kFont,
              scale_of(lettering.size), lettering.colour, weight_of(lettering.size, lettering.bold),
              cv::LINE_AA);
}

void Canvas::picture(const Frame& frame, cv::Point at, int factor) {
  if (frame.pixels.size() < frame.bytes() || frame.bytes() == 0) return;
  const cv::Mat own(frame.height, frame.width, CV_MAKETYPE(CV_8U, frame.channels),
                    const_cast<std::uint8_t*>(frame.pixels.data()));
  cv::Mat colours, large;
  cv::cvtColor(own, colours, frame.channels == 1 ? cv::COLOR_GRAY2BGR : cv::COLOR_RGB2BGR);
  cv::resize(colours, large, {}, factor * kZoom, factor * kZoom, cv::INTER_NEAREST);
  large.copyTo(sheet_({at * kZoom, large.size()}));
}

void write_below(const Frame& picture, int factor, const std::string& text, Frame& out) {
  constexpr double kSize = 10;
  const int type = CV_MAKETYPE(CV_8U, picture.channels);
  const cv::Mat own(picture.height, picture.width, type,
                    const_cast<std::uint8_t*>(picture.pixels.data()));
  const cv::Size large(factor * picture.width, factor * picture.height);
  out.id = picture.id;
  out.captured = picture.captured;
  out.pts = picture.pts;
  out.reshape(large.width, large.height + kLine, picture.channels);
  cv::Mat all(out.height, out.width, type, out.pixels.data());
  all.rowRange(large.height, all.rows).setTo(ink::paper);
  cv::resize(own, all.rowRange(0, large.height), large, 0, 0, cv::INTER_NEAREST);
  cv::putText(all, in_ascii(text), {8, all.rows - 9}, kFont, scale_of(kSize) / kZoom,
              cv::Scalar(33, 41, 51), 1, cv::LINE_AA);
}

std::string Canvas::png() const {
  cv::Mat smooth;
  cv::resize(sheet_, smooth, size_, 0, 0, cv::INTER_AREA);
  std::vector<unsigned char> bytes;
  if (!cv::imencode(".png", smooth, bytes)) throw std::runtime_error("a PNG can't be encoded");
  return {bytes.begin(), bytes.end()};
}

double Canvas::text_width(const std::string& text, double size, bool bold) {
  int base = 0;
  const cv::Size box =
      cv::getTextSize(in_ascii(text), kFont, scale_of(size), weight_of(size, bold), &base);
  return double(box.width) / kZoom;
}

std::string fitted(const std::string& text, double width, double size, bool bold) {
  if (Canvas::text_width(text, size, bold) <= width) return text;
  std::string kept;
  for (std::size_t at = 0; at < text.size();) {
    const std::string longer = text.substr(0, at += character_length(text, at));
    if (Canvas::text_width(longer + "..", size, bold) > width) break;
    kept = longer;
  }
  return kept + "..";
}

std::string short_number(double value, int digits) {
  const double size = std::abs(value);
  if (size >= 1e9 || (size > 0.0 && size < 1e-4)) return plain(value, digits);
  if (size >= 1e6) return plain(value / 1e6, digits) + "M";
  if (size >= 1e4) return plain(value / 1e3, digits) + "k";
  return plain(value, digits);
}

Axis Axis::linear(double low, double high, int marks, bool air) {
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

Axis Axis::logarithmic(double low, double high, int marks) {
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
  const bool few = axis.high_ - axis.low_ < 2.5;
  const int every = std::max(1, (last - first + marks - 1) / marks);
  for (int decade = first; decade <= last; decade += few ? 1 : every) {
    for (const double step : {1.0, 2.0, 5.0}) {
      const double value = step * std::pow(10.0, decade);
      const double place = axis.place(value);
      if ((step == 1.0 || few) && place >= 0.0 && place <= 1.0) {
        axis.ticks_.push_back({value, short_number(value, 3)});
      }
    }
  }
  return axis;
}

double Axis::place(double value) const {
  if (log_ && !(value > 0.0)) return std::nan("");
  return ((log_ ? std::log10(value) : value) - low_) / (high_ - low_);
}

}  // namespace millrace::io
