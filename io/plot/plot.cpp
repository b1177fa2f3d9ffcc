#include "io/plot/plot.h"

#include <algorithm>
#include <cmath>

#include "io/files/whole_file.h"
#include "io/plot/plot_axis.h"
#include "io/plot/plot_canvas.h"

namespace millrace::io {
namespace {

// Chart, in pixels.
constexpr int kWidth = 1200;
constexpr int kHeight = 640;
constexpr double kMargin = 36.0;
constexpr double kTickSize = 12.5;
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

bool crowded(const Series& series) {
  return series.points.size() > kCrowd;
}

bool drawable(const Chart& chart, double x, double y) {
  return std::isfinite(x) && std::isfinite(y) && (!chart.log_y || y > 0.0);
}

// Strip, in pixels.
constexpr int kBorder = 28;
constexpr int kGap = 20;
constexpr int kTop = kBorder + 34 + 24;  // of the panels, below the strip's title and theirs
constexpr int kBottom = 30 + kBorder;    // below the panels, for their captions
constexpr int kPanelWidth = 320;         // least

struct Plot {
  Axis x, y;
  double left = 0.0, right = 0.0, top = 0.0, bottom = 0.0;

  Point at(double vx, double vy) const {
    return {left + x.place(vx) * (right - left), bottom - y.place(vy) * (bottom - top)};
  }
};

/// Draws a legend from the left margin to `right`, in rows from `top` on; returns its height.
double draw_legend(Canvas& canvas, const std::vector<Series>& all, double right, double top) {
  constexpr double row = 22.0, swatch = 24.0, gap = 8.0, between = 26.0, size = 13.0;
  double x = kMargin, y = top;
  bool any = false;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].label.empty()) continue;
    const Lettering lettering{.size = size, .most = right - kMargin - swatch - gap};
    const std::string label = canvas.fitted(all[i].label, lettering);
    const double needed = swatch + gap + canvas.text_width(label, lettering);
    if (any && x + needed > right) {
      x = kMargin;
      y += row;
    }
    any = true;
    const double middle = y + row / 2.0;
    canvas.path({{x, middle}, {x + swatch, middle}},
                {.colour = ink::series(i), .width = 2.5, .dashed = all[i].dashed});
    canvas.text(label, {x + swatch + gap, middle + 0.36 * size}, lettering);
    x += needed + between;
  }
  return any ? y + row - top : 0.0;
}

Plot lay_out(const Chart& chart, Canvas& canvas) {
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
  for (const Tick& tick : plot.y.ticks())
    widest = std::max(widest, canvas.text_width(tick.label, {kTickSize}));
  plot.left = kMargin + widest + 10.0;
  plot.right = kWidth - kMargin;
  plot.bottom = kHeight - 66.0;
  return plot;
}

void draw_axes(Canvas& canvas, const Chart& chart, const Plot& plot) {
  const auto middle = [](double v) { return std::floor(v) + 0.5; };  // of a pixel: sharp lines
  for (const Tick& tick : plot.y.ticks()) {
    const double y = middle(plot.at(0.0, tick.value).y);
    canvas.path({{plot.left, y}, {plot.right, y}}, {.colour = ink::grid});
    canvas.text(tick.label, {plot.left - 10.0, y + 0.36 * kTickSize},
                {kTickSize, ink::muted, Align::right});
  }
  const double y = middle(plot.bottom);
  for (const Tick& tick : plot.x.ticks()) {
    const double x = middle(plot.at(tick.value, 1.0).x);
    canvas.path({{x, y}, {x, y + 5.0}}, {.colour = ink::axis});
    canvas.text(tick.label, {x, y + 21.0}, {kTickSize, ink::muted, Align::centre});
  }
  canvas.path({{plot.left, y}, {plot.right, y}}, {.colour = ink::axis});
  canvas.text(chart.x_label, {(plot.left + plot.right) / 2.0, y + 45.0},
              {13.0, ink::text, Align::centre});
}

/// A moving average over a fortieth of all points, applied twice.
std::vector<Point> smooth(std::vector<Point> points) {
  const std::size_t reach = points.size() / 80 + 1;
  for (int times = 0; times < 2; ++times) {
    std::vector<double> sums{0.0};
    for (const Point& point : points) sums.push_back(sums.back() + point.y);
    for (std::size_t i = 0; i < points.size(); ++i) {
      const std::size_t from = i - std::min(i, reach);
      const std::size_t to = std::min(i + reach + 1, points.size());
      points[i].y = (sums[to] - sums[from]) / double(to - from);
    }
  }
  return points;
}

/// `noise`: draws only crowded points, paler and behind their smoothed line.
void draw_series(Canvas& canvas, const Chart& chart, const Plot& plot, const Series& series,
                 unsigned colour, bool noise) {
  std::vector<Point> run;  // an undrawable value leaves a gap
  const auto finish = [&] {
    if (run.size() == 1 && !noise) canvas.dot(run[0], 2.5, colour);
    if (run.size() > 1 && noise && crowded(series))
      canvas.path(run, {.colour = colour, .opacity = series.dashed ? 0.2 : 0.3});
    if (run.size() > 1 && !noise)
      canvas.path(crowded(series) ? smooth(run) : run,
                  {.colour = colour, .width = 2.5, .dashed = series.dashed});
    run.clear();
  };
  for (const auto& [x, y] : series.points) {
    if (!drawable(chart, x, y)) {
      finish();
      continue;
    }
    run.push_back(plot.at(x, y));
    if (!noise && !series.dashed && series.points.size() <= kDotsUpTo)
      canvas.dot(run.back(), 3.5, colour);
  }
  finish();
}

/// Whole factors that make panels large enough to see, and then as equal in height as possible.
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
  Canvas canvas(kWidth, kHeight);
  Plot plot = lay_out(chart, canvas);
  const double wide = kWidth - 2.0 * kMargin;
  canvas.text(chart.title, {kMargin, 46.0}, {.size = 19.0, .bold = true, .most = wide});
  const double legend_height = draw_legend(canvas, chart.series, plot.right, 62.0);
  // The y axis's label is above it, so that it reads horizontally.
  const double label_line = 62.0 + legend_height + 24.0;
  const bool crowd = std::ranges::any_of(chart.series, crowded);
  const std::string y_label = chart.y_label + (crowd ? ", and smoothed (thick)" : "");
  canvas.text(y_label, {kMargin, label_line}, {.colour = ink::muted, .most = wide});
  plot.top = label_line + 14.0;

  draw_axes(canvas, chart, plot);
  // The first series is the most important, so it is drawn last.
  for (const bool noise : {true, false}) {
    for (std::size_t i = chart.series.size(); i-- > 0;)
      draw_series(canvas, chart, plot, chart.series[i], ink::series(i), noise);
  }
  write_whole(path, canvas.png());
}

void write_strip(const std::string& title, const std::vector<Panel>& panels,
                 const std::string& path) {
  const std::vector<int> factors = factors_of(panels);
  const auto wide = [&](std::size_t i) {
    return panels[i].picture.bytes() > 0 ? panels[i].picture.width * factors[i] : kPanelWidth;
  };
  int width = 2 * kBorder - kGap, height = 0;
  for (std::size_t i = 0; i < panels.size(); ++i) {
    const Frame& picture = panels[i].picture;
    width += wide(i) + kGap;
    height = std::max(height, picture.bytes() > 0 ? picture.height * factors[i] : kPanelWidth);
  }
  const int top = title.empty() ? kTop - 34 : kTop;
  Canvas canvas(std::max(width, kPanelWidth), top + height + kBottom);
  canvas.text(title, {kBorder, kBorder + 14.0},
              {.size = 17.0, .bold = true, .most = canvas.width() - 2.0 * kBorder});
  int left = kBorder;
  for (std::size_t i = 0; i < panels.size(); ++i) {
    const double most = wide(i);
    canvas.text(panels[i].title, {double(left), top - 10.0}, {.bold = true, .most = most});
    canvas.picture(panels[i].picture, left, top, factors[i]);
    canvas.text(panels[i].caption, {double(left), top + height + 24.0},
                {.colour = ink::muted, .most = most});
    left += wide(i) + kGap;
  }
  write_whole(path, canvas.png());
}

std::array<int, 4> first_of_three(int strip_width, int strip_height) {
  return {kBorder, kTop, (strip_width - 2 * kBorder - 2 * kGap) / 3, strip_height - kTop - kBottom};
}

void write_below(const Frame& picture, int factor, const std::string& text, Frame& out) {
  const int height = factor * picture.height;
  Canvas canvas(factor * picture.width, height + kLine);
  canvas.picture(picture, 0, 0, factor);
  canvas.text(text, {8, double(height + kLine - 9)}, {.size = 14});
  out.date_like(picture);
  out.reshape(canvas.width(), height + kLine, picture.channels);
  canvas.copy_to(out);
}

}  // namespace millrace::io
