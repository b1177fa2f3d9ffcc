// Pictures side by side.
#include <algorithm>
#include <cmath>

#include "io/files/whole_file.h"
#include "io/plot/plot.h"
#include "io/plot/plot_canvas.h"

namespace millrace::io {
namespace {

constexpr int kBorder = 28;
constexpr int kGap = 20;
constexpr int kPanelWidth = 320;  // at least
constexpr double kTitle = 12.0;
constexpr double kLabel = 9.0;

struct Placed {
  int factor = 1;
  int width = kPanelWidth;
  int height = kPanelWidth;
};

// Each panel large enough to see, then all as near one height as whole factors allow.
std::vector<Placed> place(const std::vector<Panel>& panels) {
  int height = 0;
  for (const Panel& panel : panels) {
    const int wide = std::max(1, panel.picture.width);
    height = std::max(height, panel.picture.height * ((kPanelWidth + wide - 1) / wide));
  }
  std::vector<Placed> placed;
  for (const Panel& panel : panels) {
    Placed one;
    if (panel.picture.bytes() > 0) {
      one.factor = std::max(1, int(std::lround(double(height) / panel.picture.height)));
      one.width = panel.picture.width * one.factor;
      one.height = panel.picture.height * one.factor;
    }
    placed.push_back(one);
  }
  return placed;
}

}  // namespace

void write_strip(const std::string& title, const std::vector<Panel>& panels,
                 const std::string& path) {
  const std::vector<Placed> placed = place(panels);
  int width = 2 * kBorder - kGap, height = 0;
  for (const Placed& one : placed) {
    width += one.width + kGap;
    height = std::max(height, one.height);
  }
  const int top = kBorder + (title.empty() ? 0 : 34) + 24;
  Canvas canvas(std::max(width, kPanelWidth), top + height + 30 + kBorder);
  canvas.text(fitted(title, canvas.width() - 2.0 * kBorder, kTitle, true),
              {kBorder, kBorder + 14.0}, {kTitle, ink::text, Align::left, true});

  int left = kBorder;
  for (std::size_t i = 0; i < panels.size(); ++i) {
    const Placed& one = placed[i];
    canvas.text(fitted(panels[i].title, one.width, kLabel, true), {double(left), top - 10.0},
                {kLabel, ink::text, Align::left, true});
    canvas.box({left - 1.0, top - 1.0, one.width + 2.0, one.height + 2.0}, ink::grid);
    canvas.picture(panels[i].picture, {left, top}, one.factor);
    canvas.text(fitted(panels[i].caption, one.width, kLabel),
                {double(left), top + one.height + 24.0}, {kLabel, ink::muted});
    left += one.width + kGap;
  }
  write_whole(path, canvas.png());
}

}  // namespace millrace::io
