#include "engine/plan/machine.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <stdexcept>

#include "engine/format.h"

namespace millrace::engine::plan {
namespace {

constexpr int kMostDevices = 4096;

/// `text`, part of `option`, as a number >= 0; throws std::invalid_argument.
double number(const std::string& text, const std::string& option) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value) || value < 0) {
    throw std::invalid_argument("\"" + option + "\": \"" + text + "\" is not a number >= 0");
  }
  return value;
}

Link parse_link(const std::string& text, const std::string& option) {
  const std::vector<std::string> parts = split(text, ":");
  if (parts.size() > 2) throw std::invalid_argument("\"" + option + "\": a link is GB/s[:ms]");
  return {parts.size() == 2 ? number(parts[1], option) : 0.0, 1e6 * number(parts[0], option)};
}

}  // namespace

Machine parse_machine(const std::string& devices, const std::string& links,
                      const std::string& overlap, double memory_bytes, const Profile& profile) {
  Machine machine{.levels = {}, .memory_bytes = memory_bytes};
  long product = 1;
  for (const std::string& part : split(devices, "x")) {
    const double count = number(part, devices);
    if (count < 1 || count > kMostDevices || count != std::floor(count) ||
        (product *= long(count)) > kMostDevices) {
      throw std::invalid_argument("\"" + devices + "\" is not a number of devices from 1 to " +
                                  std::to_string(kMostDevices));
    }
    machine.levels.push_back({int(count), {}});
  }
  std::vector<Link> given;
  if (!links.empty()) {
    for (const std::string& part : split(links, ",")) given.push_back(parse_link(part, links));
  } else if (!profile.hand_offs.empty()) {
    given.push_back(fit_link(profile.hand_offs.front().points));
    const auto sums = std::ranges::find_if(profile.hand_offs, [](const HandOff& known) {
      return known.between == kSums && !known.points.empty();
    });
    if (sums != profile.hand_offs.end()) machine.sums = fit_link(sums->points);
  }
  if (given.size() > machine.levels.size()) {
    throw std::invalid_argument("\"" + links + "\": more links than levels in \"" + devices + "\"");
  }
  for (std::size_t i = 0; i < machine.levels.size() && !given.empty(); ++i) {
    machine.levels[i].link = given[std::min(i, given.size() - 1)];
  }
  std::reverse(machine.levels.begin(), machine.levels.end());
  const std::map<std::string, Overlap> overlaps = {
      {"none", Overlap::none}, {"transfers", Overlap::transfers}, {"all", Overlap::all}};
  if (!overlaps.contains(overlap))
    throw std::invalid_argument("\"" + overlap + "\" must be none, transfers or all");
  machine.overlap = overlaps.at(overlap);
  return machine;
}

}  // namespace millrace::engine::plan
