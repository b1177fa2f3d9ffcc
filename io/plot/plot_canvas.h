#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <cairo.h>

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

enum class Align { left, centre, right };

/// `size`: of the font, in pixels.
struct Lettering {
  double size = 13.0;
  unsigned colour = ink::text;
  Align align = Align::left;
  bool bold = false;
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
  Canvas(int width, int height);

  int width() const { return cairo_image_surface_get_width(sheet_.get()); }

  void path(const std::vector<Point>& points, const Pen& pen);
  void dot(Point centre, double radius, unsigned colour);
  /// `at` is on the base line.
  void text(const std::string& text, Point at, const Lettering& lettering);
  /// Draws each pixel as a `factor` x `factor` square, and a border around them all.
  void picture(const Frame& frame, int left, int top, int factor);

  double text_width(const std::string& text, double size, bool bold = false);
  /// `text`, cut with an ellipsis to be at most `width` wide.
  std::string fitted(const std::string& text, double width, double size, bool bold = false);

  /// Throws std::runtime_error if something could not be drawn.
  std::string png() const;
  /// `out` must have the canvas's size and 3 channels, or 1 for grey.
  void copy_to(Frame& out) const;

 private:
  void use(unsigned colour, double opacity = 1.0);

  std::unique_ptr<cairo_surface_t, void (*)(cairo_surface_t*)> sheet_;
  std::unique_ptr<cairo_t, void (*)(cairo_t*)> pen_;
};

}  // namespace millrace::io
