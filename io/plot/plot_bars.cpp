// A bar chart: categories along the bottom, a bar for each group in each.
#include <algorithm>  // ranges
#include <cmath>      // NaN: no bar

#include "io/plot/plot.h"
#include "io/plot/plot_axis.h"
#include "io/plot/plot_canvas.h"
#include "io/files/whole_file.h"

namespace millrace::io {
namespace {


Axis value_axis(const BarChart& chart) {
  double low = 0.0, high = 0.0;  // a bar stands on 0
  for (const auto& [label, values] : chart.groups) {
    for (const double value : values) {
      if (!std::isfinite(value)) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  return Axis::linear(low, low == high ? 1.0 : high, 7);
}

struct Area {
  double left, right, top, bottom;
};

void draw_grid(Canvas& canvas, const Axis& axis, const Area& area) {
  for (const Tick& tick : axis.ticks()) {
    const double y = area.bottom - axis.place(tick.value) * (area.bottom - area.top);
    canvas.line({area.left, y}, {area.right, y}, tick.value == 0.0 ? ink::axis : ink::grid);
    canvas.text(tick.label, {area.left - 10.0, y + 4.0}, {8.5, ink::muted, Align::right});
  }
}

// Bars of one category between `left` and `right`.
void draw_category(Canvas& canvas, const BarChart& chart, const Axis& axis, const Area& area,
                   std::size_t category, double left, double right) {
  const double slot = (right - left) / double(std::max<std::size_t>(1, chart.groups.size()));
  const double width = std::min(slot * 0.88, 72.0);
  const auto height_of = [&](double value) {
    return area.bottom - axis.place(value) * (area.bottom - area.top);
  };
  const double middle = (left + right) / 2.0;
  for (std::size_t g = 0; g < chart.groups.size(); ++g) {
    const std::vector<double>& values = chart.groups[g].second;
    if (category >= values.size() || !std::isfinite(values[category])) continue;
    const double value = values[category];
    const double step = std::min(slot, width / 0.88);
    const double x = middle + (double(g) - double(chart.groups.size()) / 2.0) * step;
    const double y = height_of(value), zero = height_of(0.0);
    canvas.box({x + (step - width) / 2.0, std::min(y, zero), width, std::abs(zero - y)},
               ink::series(g));
    const std::string label = short_number(value, 3);
    if (Canvas::text_width(label, 7.5) <= step + 2.0) {
      canvas.text(label, {x + step / 2.0, value < 0.0 ? y + 14.0 : y - 6.0},
                  {7.5, ink::text, Align::centre});
    }
  }
}

}  // namespace

void write_bars(const BarChart& chart, const std::string& path) {
  const Axis axis = value_axis(chart);
  double widest = 0.0;
  for (const Tick& tick : axis.ticks()) {
    widest = std::max(widest, Canvas::text_width(tick.label, 8.5));
  }
  std::vector<LegendEntry> legend;
  for (std::size_t g = 0; g < chart.groups.size(); ++g) {
    legend.push_back({chart.groups[g].first, ink::series(g), false, true});
  }
  Canvas canvas(kWidth, kHeight);
  Area area{kMargin + widest + 10.0, kWidth - kMargin, 0.0, kHeight - 54.0};
  const double wide = kWidth - 2.0 * kMargin;
  canvas.text(fitted(chart.title, wide, 13.0, true), {kMargin, 46.0},
              {13.0, ink::text, Align::left, true});
  const double legend_height = draw_legend(canvas, legend, kMargin, area.right, 62.0);
  const double label_line = 62.0 + legend_height + 24.0;
  canvas.text(fitted(chart.y_label, wide, 9.0), {kMargin, label_line}, {9.0, ink::text});
  area.top = label_line + 14.0;

  draw_grid(canvas, axis, area);
  const double slot =
      (area.right - area.left) / double(std::max<std::size_t>(1, chart.categories.size()));
  for (std::size_t c = 0; c < chart.categories.size(); ++c) {
    const double left = area.left + double(c) * slot;
    draw_category(canvas, chart, axis, area, c, left + slot * 0.1, left + slot * 0.9);
    canvas.text(fitted(chart.categories[c], slot - 6.0, 8.5),
                {left + slot / 2.0, area.bottom + 24.0}, {8.5, ink::text, Align::centre});
  }
  write_whole(path, canvas.png());
}

}  // namespace millrace::io
