#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numbers>
#include <stdexcept>
#include <string>
#include <vector>

#include <cairo.h>
#include <nlohmann/json.hpp>
#include <opencv2/imgproc.hpp>

#include "io/source/frame.h"

namespace millrace::io {

struct Point {
  double x = 0.0, y = 0.0;
};

namespace ink {  // 0xRRGGBB
inline constexpr unsigned paper = 0xffffff, text = 0x212933, muted = 0x667280, grid = 0xe4e8ec,
                          axis = 0x9ca6b2;

/// Okabe and Ito's colour-blind safe palette, without yellow, too pale on white.
inline constexpr std::array<unsigned, 7> palette = {0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7,
                                                    0xe69f00, 0x56b4e9, 0x3c3c3c};
inline constexpr unsigned series(std::size_t number) {
  return palette[number % palette.size()];
}
}  // namespace ink

// Names of files, for instance, need not be UTF-8, and Cairo draws nothing after an invalid text.
inline std::string legible(const std::string& text) {
  using Json = nlohmann::json;
  const std::string json = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(json).get<std::string>();
}

enum class Align { left, centre, right };  // in halves of the width

/// `size`: of the font, in pixels. Text wider than `most` is cut with an ellipsis.
struct Lettering {
  double size = 13.0;
  unsigned colour = ink::text;
  Align align = Align::left;
  bool bold = false;
  double most = INFINITY;
};

struct Pen {
  unsigned colour = ink::text;
  double width = 1.0;
  double opacity = 1.0;
  bool dashed = false;
};

/// Lengths are in pixels. Thread-bound.
class Canvas {
 public:
  Canvas(int width, int height)
      : sheet_(cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height),
               cairo_surface_destroy),
        pen_(cairo_create(sheet_.get()), cairo_destroy) {
    use(ink::paper);
    cairo_paint(pen_.get());
    cairo_set_line_join(pen_.get(), CAIRO_LINE_JOIN_ROUND);
    cairo_font_options_t* const options = cairo_font_options_create();
    cairo_font_options_set_hint_style(options, CAIRO_HINT_STYLE_NONE);
    cairo_font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
    cairo_font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
    cairo_set_font_options(pen_.get(), options);
    cairo_font_options_destroy(options);
  }

  int width() const { return cairo_image_surface_get_width(sheet_.get()); }

  void path(const std::vector<Point>& points, const Pen& pen) {
    constexpr double dashes[] = {7.0, 5.0};
    for (const Point& point : points) cairo_line_to(pen_.get(), point.x, point.y);
    cairo_set_line_width(pen_.get(), pen.width);
    cairo_set_dash(pen_.get(), dashes, pen.dashed ? 2 : 0, 0.0);
    use(pen.colour, pen.opacity);
    cairo_stroke(pen_.get());
  }

  void dot(Point centre, double radius, unsigned colour) {
    cairo_arc(pen_.get(), centre.x, centre.y, radius, 0.0, 2.0 * std::numbers::pi);
    use(colour);
    cairo_fill(pen_.get());
  }

  /// `at` is on the base line.
  void text(const std::string& text, Point at, const Lettering& lettering) {
    const std::string shown = fitted(text, lettering);
    const double share = int(lettering.align) / 2.0;
    cairo_move_to(pen_.get(), at.x - share * text_width(shown, lettering), at.y);
    use(lettering.colour);
    cairo_show_text(pen_.get(), shown.c_str());
    cairo_new_path(pen_.get());
  }

  /// Draws each pixel as a `factor` x `factor` square, and a border around them all.
  void picture(const Frame& frame, int left, int top, int factor) {
    if (frame.pixels.size() < frame.bytes() || frame.bytes() == 0) return;
    cairo_t* const pen = pen_.get();
    cairo_surface_t* const small =
        cairo_image_surface_create(CAIRO_FORMAT_RGB24, frame.width, frame.height);
    // cv::Mat takes no pointer to const, but only reads it.
    const cv::Mat from(frame.height, frame.width, CV_8UC(frame.channels),
                       const_cast<std::uint8_t*>(frame.pixels.data()));
    cv::cvtColor(from, pixels_of(small),
                 frame.channels == 1 ? cv::COLOR_GRAY2BGRA : cv::COLOR_RGB2BGRA);
    cairo_surface_mark_dirty(small);
    use(ink::grid);
    cairo_rectangle(pen, left - 1, top - 1, frame.width * factor + 2, frame.height * factor + 2);
    cairo_fill(pen);
    cairo_save(pen);
    cairo_translate(pen, left, top);
    cairo_scale(pen, factor, factor);
    cairo_set_source_surface(pen, small, 0.0, 0.0);
    cairo_pattern_set_filter(cairo_get_source(pen), CAIRO_FILTER_NEAREST);
    cairo_rectangle(pen, 0.0, 0.0, frame.width, frame.height);
    cairo_fill(pen);
    cairo_restore(pen);
    cairo_surface_destroy(small);
  }

  double text_width(const std::string& text, const Lettering& lettering) {
    cairo_select_font_face(pen_.get(), "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           lettering.bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(pen_.get(), lettering.size);
    cairo_text_extents_t extents{};
    cairo_text_extents(pen_.get(), legible(text).c_str(), &extents);
    return extents.x_advance;
  }

  std::string fitted(const std::string& text, const Lettering& lettering) {
    std::string kept = legible(text);
    if (text_width(kept, lettering) <= lettering.most) return kept;
    while (!kept.empty() && text_width(kept + "…", lettering) > lettering.most) {
      while (!kept.empty() && (kept.back() & 0xc0) == 0x80) kept.pop_back();
      if (!kept.empty()) kept.pop_back();
    }
    return kept + "…";
  }

  /// Throws std::runtime_error if something could not be drawn.
  std::string png() const {
    std::string bytes;
    const auto append = [](void* to, const unsigned char* more, unsigned length) {
      static_cast<std::string*>(to)->append(reinterpret_cast<const char*>(more), length);
      return CAIRO_STATUS_SUCCESS;
    };
    const cairo_status_t drawn = cairo_status(pen_.get());
    const cairo_status_t written =
        drawn ? drawn : cairo_surface_write_to_png_stream(sheet_.get(), append, &bytes);
    if (written)
      throw std::runtime_error(std::string("a PNG can't be drawn: ") +
                               cairo_status_to_string(written));
    return bytes;
  }

  /// `out` must have the canvas's size and 3 channels, or 1 for grey.
  void copy_to(Frame& out) const {
    cairo_surface_flush(sheet_.get());
    const cv::Mat to(out.height, out.width, CV_8UC(out.channels), out.pixels.data());
    if (out.channels == 1)
      cv::extractChannel(pixels_of(sheet_.get()), to, 2);  // red: in grey all three are equal
    else
      cv::cvtColor(pixels_of(sheet_.get()), to, cv::COLOR_BGRA2RGB);
  }

 private:
  /// 32 bits each: blue, green, red, and nothing.
  static cv::Mat pixels_of(cairo_surface_t* sheet) {
    return cv::Mat(cairo_image_surface_get_height(sheet), cairo_image_surface_get_width(sheet),
                   CV_8UC4, cairo_image_surface_get_data(sheet),
                   std::size_t(cairo_image_surface_get_stride(sheet)));
  }

  void use(unsigned colour, double opacity = 1.0) {
    cairo_set_source_rgba(pen_.get(), (colour >> 16 & 255) / 255.0, (colour >> 8 & 255) / 255.0,
                          (colour & 255) / 255.0, opacity);
  }

  std::unique_ptr<cairo_surface_t, void (*)(cairo_surface_t*)> sheet_;
  std::unique_ptr<cairo_t, void (*)(cairo_t*)> pen_;
};

}  // namespace millrace::io
