#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "io/source/frame.h"

namespace millrace::io {

struct Series {
  std::string label;
  std::vector<std::pair<double, double>> points;  ///< (x, y), x ascending
  bool dashed = false;                            ///< for reference levels
};

struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool log_y = false;
  std::vector<Series> series;
};

struct Panel {
  std::string title;
  std::string caption;
  Frame picture;
};

/// Each write_* writes the PNG whole (temporary file, fsync, rename) or throws std::runtime_error.
void write_chart(const Chart& chart, const std::string& path);
/// Panels side by side, enlarged by whole factors without smoothing.
void write_strip(const std::string& title, const std::vector<Panel>& panels,
                 const std::string& path);
/// Position of the first of three equal panels in a strip with a title: x, y, width, height, of
/// which one is below 1 if there is no room for it.
std::array<int, 4> first_of_three(int strip_width, int strip_height);

/// `picture` enlarged by a whole factor, above a line of `text`: kLine pixels more. Reuses `out`.
void write_below(const Frame& picture, int factor, const std::string& text, Frame& out);
constexpr int kLine = 28;

}  // namespace millrace::io
