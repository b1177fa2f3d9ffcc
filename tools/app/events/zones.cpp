#include "tools/app/events/event.h"

#include <algorithm>

namespace millrace::app {

bool Zone::contains(double x, double y) const {
  bool inside = false;
  for (std::size_t i = 0, before = points.size() - 1; i < points.size(); before = i++) {
    const auto [ax, ay] = points[i];
    const auto [bx, by] = points[before];
    if ((ay > y) != (by > y) && x < (bx - ax) * (y - ay) / (by - ay) + ax) inside = !inside;
  }
  return inside;
}

std::string zone_error(const Zone& zone, int width, int height) {
  if (zone.points.size() < 3) return "a polygon needs at least 3 points";
  for (const auto& [x, y] : zone.points)
    if (!(x >= 0 && x <= 1 && y >= 0 && y <= 1))
      return "a point lies outside the picture: coordinates go from 0 to 1";
  for (int y = 0; y < std::max(1, height); ++y) {
    for (int x = 0; x < width; ++x)
      if (zone.contains((x + 0.5) / width, (y + 0.5) / height)) return "";
  }
  return width > 0 && height > 0 ? "the polygon covers no pixel" : "";
}

}  // namespace millrace::app
