#include "engine/plan/machine_text.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>

namespace millrace::engine::plan {
namespace {

constexpr int kMostDevices = 4096;

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == by) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// A positive number, and nothing behind it.
double positive(const std::string& text, const std::string& whole) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value) || value < 0) {
    throw std::invalid_argument("\"" + whole + "\": \"" + text + "\" is no number >= 0");
  }
  return value;
}

Link parse_link(const std::string& text, const std::string& whole) {
  const std::vector<std::string> parts = split(text, ':');
  if (parts.size() > 2) throw std::invalid_argument("\"" + whole + "\": a link is GB/s[:ms]");
  return {parts.size() == 2 ? positive(parts[1], whole) : 0.0, 1e6 * positive(parts[0], whole)};
}

}  // namespace

Machine parse_machine(const std::string& devices, const std::string& links,
                      const std::string& overlap, double memory_bytes, const Profile& profile) {
  Machine machine{.levels = {}, .memory_bytes = memory_bytes};
  long product = 1;
  for (const std::string& part : split(devices, 'x')) {
    const double count = positive(part, devices);
    if (count < 1 || count != std::floor(count) || (product *= long(count)) > kMostDevices) {
      throw std::invalid_argument("\"" + devices + "\" is no number of devices, 1 to " +
                                  std::to_string(kMostDevices));
    }
    machine.levels.push_back({int(count), {}});
  }
  std::vector<Link> given;
  if (!links.empty()) {
    for (const std::string& part : split(links, ',')) given.push_back(parse_link(part, links));
  } else if (!profile.hand_offs.empty()) {
    given.push_back(fit_link(profile.hand_offs.front().points));
    const HandOff* const sums = hand_off_of(profile, kSums);
    machine.knows_sums = sums != nullptr;
    if (sums) machine.sums = fit_link(sums->points);
  }
  if (given.size() > machine.levels.size()) {
    throw std::invalid_argument("\"" + links + "\": more links than levels in \"" + devices + "\"");
  }
  for (std::size_t i = 0; i < machine.levels.size() && !given.empty(); ++i) {
    machine.levels[i].link = given[std::min(i, given.size() - 1)];
  }
  std::reverse(machine.levels.begin(), machine.levels.end());
  if (overlap == "transfers") {
    machine.overlap = Overlap::transfers;
  } else if (overlap == "all") {
    machine.overlap = Overlap::all;
  } else if (overlap != "none") {
    throw std::invalid_argument("\"" + overlap + "\" is none of none, transfers, all");
  }
  return machine;
}

}  // namespace millrace::engine::plan
