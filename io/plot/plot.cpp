#include "io/plot/plot.h"

#include <algorithm>
#include <cmath>

#include "io/files/whole_file.h"
#include "io/plot/plot_canvas.h"

namespace millrace::io {
namespace {

// Of a chart, in pixels.
constexpr int kWidth = 1200;
constexpr int kHeight = 640;
constexpr double kMargin = 36.0;
constexpr std::size_t kCrowd = 400;
constexpr std::size_t kDotsUpTo = 24;  // up to this many points are marked

struct Range {
  double low = INFINITY;
  double high = -INFINITY;
  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

bool drawable(const Chart& chart, double x, double y) {
  return std::isfinite(x) && std::isfinite(y) && (!chart.log_y || y > 0.0);
}

// Of a strip, in pixels.
constexpr int kBorder = 28;
constexpr int kGap = 20;
constexpr int kTop = kBorder + 34 + 24;     // of the panels, below title and their own titles
constexpr int kBottom = 30 + kBorder;       // below the panels, for their captions
constexpr int kPanelWidth = 320;  // least
constexpr double kTitle = 12.0;
constexpr double kLabel = 9.0;

/// Position of the data and the axes around it.
struct Plot {
  Axis x, y;
  double left = 0.0, right = 0.0, top = 0.0, bottom = 0.0;

  Point at(double vx, double vy) const {
    return {left + x.place(vx) * (right - left), bottom - y.place(vy) * (bottom - top)};
  }
};

Plot lay_out(const Chart& chart) {
  Range xs, ys;
  for (const Series& series : chart.series) {
    for (const auto& [x, y] : series.points) {
      if (!drawable(chart, x, y)) continue;
      xs.take(x);
      ys.take(y);
    }
  }
  Plot plot;
  plot.x = Axis::linear(xs.low, xs.high, 10, false);
  plot.y = chart.log_y ? Axis::logarithmic(ys.low, ys.high, 8) : Axis::linear(ys.low, ys.high, 7);
  double widest = 0.0;
  for (const Tick& tick : plot.y.ticks()) {
    widest = std::max(widest, Canvas::text_width(tick.label, 8.5));
  }
  plot.left = kMargin + widest + 10.0;
  plot.right = kWidth - kMargin;
  plot.bottom = kHeight - 66.0;
  return plot;
}

/// Draws a legend from the left margin to `right`, in rows from `top` on; returns its height.
double draw_legend(Canvas& canvas, const std::vector<Series>& all, double right, double top) {
  constexpr double row = 22.0, swatch = 24.0, gap = 8.0, between = 26.0, size = 9.0;
  double x = kMargin, y = top;
  bool any = false;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].label.empty()) continue;
    const std::string label = fitted(all[i].label, right - kMargin - swatch - gap, size);
    const double needed = swatch + gap + Canvas::text_width(label, size);
    if (any && x + needed > right) {
      x = kMargin;
      y += row;
    }
    any = true;
    const double middle = y + row / 2.0;
    canvas.path({{x, middle}, {x + swatch, middle}}, ink::series(i), 2.0, all[i].dashed);
    canvas.text(label, {x + swatch + gap, middle + size / 2.0}, {size, ink::text});
    x += needed + between;
  }
  return any ? y + row - top : 0.0;
}

void draw_axes(Canvas& canvas, const Chart& chart, const Plot& plot) {
  for (const Tick& tick : plot.y.ticks()) {
    const double y = plot.at(0.0, tick.value).y;
    canvas.line({plot.left, y}, {plot.right, y}, ink::grid);
    canvas.text(tick.label, {plot.left - 10.0, y + 4.0}, {8.5, ink::muted, Align::right});
  }
  for (const Tick& tick : plot.x.ticks()) {
    const double x = plot.at(tick.value, 1.0).x;
    canvas.line({x, plot.top}, {x, plot.bottom}, ink::grid);
    canvas.line({x, plot.bottom}, {x, plot.bottom + 5.0}, ink::axis);
    canvas.text(tick.label, {x, plot.bottom + 21.0}, {8.5, ink::muted, Align::centre});
  }
  canvas.line({plot.left, plot.bottom}, {plot.right, plot.bottom}, ink::axis);
  canvas.text(chart.x_label, {(plot.left + plot.right) / 2.0, plot.bottom + 46.0},
              {9.0, ink::text, Align::centre});
}

void draw_series(Canvas& canvas, const Chart& chart, const Plot& plot, const Series& series,
                 const cv::Scalar& colour) {
  // Thick lines that jump from pixel to pixel would merge.
  const double thickness = series.dashed || series.points.size() > kCrowd ? 1.5 : 2.0;
  std::vector<Point> run;  // an undrawable value leaves a gap
  const auto finish = [&] {
    if (run.size() == 1) canvas.dot(run[0], 2.5, colour);
    if (run.size() > 1) canvas.path(run, colour, thickness, series.dashed);
    run.clear();
  };
  for (const auto& [x, y] : series.points) {
    if (!drawable(chart, x, y)) {
      finish();
      continue;
    }
    run.push_back(plot.at(x, y));
    if (!series.dashed && series.points.size() <= kDotsUpTo) canvas.dot(run.back(), 3.5, colour);
  }
  finish();
}

/// Whole factors that make panels large enough to see, then as near to one height as possible.
std::vector<int> factors_of(const std::vector<Panel>& panels) {
  int height = 0;
  for (const Panel& panel : panels) {
    const int wide = std::max(1, panel.picture.width);
    height = std::max(height, panel.picture.height * ((kPanelWidth + wide - 1) / wide));
  }
  std::vector<int> factors;
  for (const Panel& panel : panels) {
    const int high = std::max(1, panel.picture.height);
    factors.push_back(std::max(1, int(std::lround(double(height) / high))));
  }
  return factors;
}

}  // namespace

void write_chart(const Chart& chart, const std::string& path) {
  Plot plot = lay_out(chart);
  Canvas canvas(kWidth, kHeight);
  const double wide = kWidth - 2.0 * kMargin;
  canvas.text(fitted(chart.title, wide, 13.0, true), {kMargin, 46.0},
              {13.0, ink::text, Align::left, true});
  const double legend_height = draw_legend(canvas, chart.series, plot.right, 62.0);
  // The y axis's label is above it, so that it reads horizontally.
  const double label_line = 62.0 + legend_height + 24.0;
  canvas.text(fitted(chart.y_label, wide, 9.0), {kMargin, label_line}, {9.0, ink::text});
  plot.top = label_line + 14.0;

  draw_axes(canvas, chart, plot);
  // The first series is the most important, so it is drawn last.
  for (std::size_t i = chart.series.size(); i-- > 0;) {
    draw_series(canvas, chart, plot, chart.series[i], ink::series(i));
  }
  write_whole(path, canvas.png());
}

void write_strip(const std::string& title, const std::vector<Panel>& panels,
                 const std::string& path) {
  const std::vector<int> factors = factors_of(panels);
  const auto size_of = [&](std::size_t i) {
    const Frame& picture = panels[i].picture;
    return picture.bytes() > 0 ? cv::Size(picture.width, picture.height) * factors[i]
                               : cv::Size(kPanelWidth, kPanelWidth);
  };
  int width = 2 * kBorder - kGap, height = 0;
  for (std::size_t i = 0; i < panels.size(); ++i) {
    width += size_of(i).width + kGap;
    height = std::max(height, size_of(i).height);
  }
  const int top = title.empty() ? kTop - 34 : kTop;
  Canvas canvas(std::max(width, kPanelWidth), top + height + kBottom);
  canvas.text(fitted(title, canvas.width() - 2.0 * kBorder, kTitle, true),
              {kBorder, kBorder + 14.0}, {kTitle, ink::text, Align::left, true});

  int left = kBorder;
  for (std::size_t i = 0; i < panels.size(); ++i) {
    const cv::Size size = size_of(i);
    canvas.text(fitted(panels[i].title, size.width, kLabel, true), {double(left), top - 10.0},
                {kLabel, ink::text, Align::left, true});
    canvas.box({left - 1, top - 1, size.width + 2, size.height + 2}, ink::grid);
    canvas.picture(panels[i].picture, {left, top}, factors[i]);
    canvas.text(fitted(panels[i].caption, size.width, kLabel),
                {double(left), top + size.height + 24.0}, {kLabel, ink::muted});
    left += size.width + kGap;
  }
  write_whole(path, canvas.png());
}

std::array<int, 4> first_of_three(int strip_width, int strip_height) {
  return {kBorder, kTop, (strip_width - 2 * kBorder - 2 * kGap) / 3, strip_height - kTop - kBottom};
}

}  // namespace millrace::io
