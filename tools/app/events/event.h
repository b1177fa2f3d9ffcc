#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

namespace millrace::app {

enum class Reason { local, picture, frozen, covered, moved, light, camera };
inline constexpr const char* kReasonNames[] = {"local", "picture", "frozen", "covered",
                                               "moved", "light",   "camera"};
inline constexpr std::size_t kReasons = std::size(kReasonNames);
inline const char* name_of(Reason reason) {
  return kReasonNames[std::size_t(reason)];
}

/// The box is in pixels of the samples, which are `across` x `down`; empty: the whole picture.
struct NoveltyEvent {
  std::int64_t event = 0;  ///< 1, 2, ... in this run
  std::int64_t frame = 0;  ///< the source's number of its first frame
  std::chrono::system_clock::time_point time;
  Reason reason = Reason::picture;
  int left = 0, top = 0, width = 0, height = 0;
  int across = 0, down = 0;
  std::string zone;  ///< its name; "": none
  double deviation = 0;

  bool has_box() const { return width > 0; }
};

/// A polygon in fractions of the picture, 0..1 from its upper left corner.
struct Zone {
  std::string name;
  std::vector<std::array<double, 2>> points;
  double sensitivity = 1;  ///< 2: half the change is an event there

  /// Even-odd rule.
  bool contains(double x, double y) const {
    bool inside = false;
    for (std::size_t i = 0, before = points.size() - 1; i < points.size(); before = i++) {
      const auto [ax, ay] = points[i];
      const auto [bx, by] = points[before];
      if ((ay > y) != (by > y) && x < (bx - ax) * (y - ay) / (by - ay) + ax) inside = !inside;
    }
    return inside;
  }
  bool operator==(const Zone&) const = default;
};

/// What is wrong with the polygon in a picture of that size (0: unknown); "": nothing.
inline std::string zone_error(const Zone& zone, int width, int height) {
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
