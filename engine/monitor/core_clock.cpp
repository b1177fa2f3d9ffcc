#include "engine/monitor/core_clock.h"

#include <algorithm>
#include <cmath>
#include <fstream>

namespace millrace::engine {
namespace {

/// The number in a file, or 0 if there is none.
double number_in(const std::filesystem::path& file) {
  double number = 0;
  std::ifstream(file) >> number;
  return number;
}

}  // namespace

std::string slow_clock(const std::filesystem::path& sys) {
  double now = 0, most = 0;
  std::error_code error;
  for (const auto& core : std::filesystem::directory_iterator(sys / "devices/system/cpu", error)) {
    const double its_now = number_in(core.path() / "cpufreq/scaling_cur_freq");
    const double its_most = number_in(core.path() / "cpufreq/cpuinfo_max_freq");
    if (its_most > 0 && its_now * most >= now * its_most) now = its_now, most = its_most;
  }
  if (now <= 0 || now >= 0.9 * most) return "";
  double hottest = 0;
  for (const auto& zone : std::filesystem::directory_iterator(sys / "class/thermal", error))
    hottest = std::max(hottest, number_in(zone.path() / "temp"));
  const auto rounded = [](double thousands) {
    return std::to_string(std::lround(thousands / 1000));
  };
  std::string told = "cores run at " + rounded(now) + " of " + rounded(most) + " MHz";
  if (hottest > 0) told += ", " + rounded(hottest) + " C";
  return told;
}

}  // namespace millrace::engine
