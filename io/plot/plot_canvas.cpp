#include "io/plot/plot_canvas.h"

#include <cstdint>
#include <numbers>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "io/plot/plot.h"

namespace millrace::io {
namespace {

// Names of files, for instance, need not be UTF-8, and Cairo draws nothing after an invalid text.
std::string legible(const std::string& text) {
  using Json = nlohmann::json;
  const std::string json = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(json).get<std::string>();
}

cairo_status_t append(void* to, const unsigned char* bytes, unsigned length) {
  static_cast<std::string*>(to)->append(reinterpret_cast<const char*>(bytes), length);
  return CAIRO_STATUS_SUCCESS;
}

}  // namespace

Canvas::Canvas(int width, int height)
    : sheet_(cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height), cairo_surface_destroy),
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

void Canvas::use(unsigned colour, double opacity) {
  cairo_set_source_rgba(pen_.get(), (colour >> 16 & 255) / 255.0, (colour >> 8 & 255) / 255.0,
                        (colour & 255) / 255.0, opacity);
}

void Canvas::path(const std::vector<Point>& points, const Pen& pen) {
  constexpr double dashes[] = {7.0, 5.0};
  for (const Point& point : points) cairo_line_to(pen_.get(), point.x, point.y);
  cairo_set_line_width(pen_.get(), pen.width);
  cairo_set_dash(pen_.get(), dashes, pen.dashed ? 2 : 0, 0.0);
  use(pen.colour, pen.opacity);
  cairo_stroke(pen_.get());
}

void Canvas::dot(Point centre, double radius, unsigned colour) {
  cairo_arc(pen_.get(), centre.x, centre.y, radius, 0.0, 2.0 * std::numbers::pi);
  use(colour);
  cairo_fill(pen_.get());
}

void Canvas::text(const std::string& text, Point at, const Lettering& lettering) {
  const double length = text_width(text, lettering.size, lettering.bold);
  const double share = lettering.align == Align::left     ? 0.0
                       : lettering.align == Align::centre ? 0.5
                                                          : 1.0;
  cairo_move_to(pen_.get(), at.x - share * length, at.y);
  use(lettering.colour);
  cairo_show_text(pen_.get(), legible(text).c_str());
  cairo_new_path(pen_.get());
}

void Canvas::picture(const Frame& frame, int left, int top, int factor) {
  if (frame.pixels.size() < frame.bytes() || frame.bytes() == 0) return;
  cairo_t* const pen = pen_.get();
  cairo_surface_t* const small =
      cairo_image_surface_create(CAIRO_FORMAT_RGB24, frame.width, frame.height);
  const int stride = cairo_image_surface_get_stride(small), deep = frame.channels;
  for (int y = 0; y < frame.height; ++y) {
    auto* const row =
        reinterpret_cast<std::uint32_t*>(cairo_image_surface_get_data(small) + y * stride);
    for (int x = 0; x < frame.width; ++x) {
      const std::uint8_t* const from = &frame.pixels[(std::size_t(y) * frame.width + x) * deep];
      row[x] = deep == 1 ? from[0] * 0x010101u : unsigned(from[0] << 16 | from[1] << 8 | from[2]);
    }
  }
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

double Canvas::text_width(const std::string& text, double size, bool bold) {
  cairo_select_font_face(pen_.get(), "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                         bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(pen_.get(), size);
  cairo_text_extents_t extents{};
  cairo_text_extents(pen_.get(), legible(text).c_str(), &extents);
  return extents.x_advance;
}

std::string Canvas::fitted(const std::string& text, double width, double size, bool bold) {
  std::string kept = legible(text);
  if (text_width(kept, size, bold) <= width) return kept;
  while (!kept.empty() && text_width(kept + "…", size, bold) > width) {
    while (!kept.empty() && (kept.back() & 0xc0) == 0x80) kept.pop_back();
    if (!kept.empty()) kept.pop_back();
  }
  return kept + "…";
}

std::string Canvas::png() const {
  std::string bytes;
  const cairo_status_t drawn = cairo_status(pen_.get());
  const cairo_status_t written =
      drawn ? drawn : cairo_surface_write_to_png_stream(sheet_.get(), append, &bytes);
  if (written)
    throw std::runtime_error(std::string("a PNG can't be drawn: ") +
                             cairo_status_to_string(written));
  return bytes;
}

void Canvas::copy_to(Frame& out) const {
  cairo_surface_flush(sheet_.get());
  const int stride = cairo_image_surface_get_stride(sheet_.get());
  for (int y = 0; y < out.height; ++y) {
    const auto* const row = reinterpret_cast<const std::uint32_t*>(
        cairo_image_surface_get_data(sheet_.get()) + y * stride);
    std::uint8_t* to = &out.pixels[std::size_t(y) * out.width * out.channels];
    for (int x = 0; x < out.width; ++x) {
      for (int c = 0; c < out.channels; ++c) *to++ = std::uint8_t(row[x] >> (16 - 8 * c));
    }
  }
}

void write_below(const Frame& picture, int factor, const std::string& text, Frame& out) {
  const int height = factor * picture.height;
  Canvas canvas(factor * picture.width, height + kLine);
  canvas.picture(picture, 0, 0, factor);
  canvas.text(text, {8, double(height + kLine - 9)}, {.size = 14});
  out.id = picture.id;
  out.captured = picture.captured;
  out.pts = picture.pts;
  out.reshape(canvas.width(), height + kLine, picture.channels);
  canvas.copy_to(out);
}

}  // namespace millrace::io
