#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/plan/profile.h"

namespace millrace::engine::plan {

/// `count` parts (devices, in the first level), every pair connected by `link`.
struct Level {
  int count = 1;
  Link link;
  bool operator==(const Level&) const = default;
};

/// What overlaps with a device's computing; the longer of the two sets the pace.
enum class Overlap {
  none,       ///< nothing: the worker itself hands over, as on a CPU
  transfers,  ///< messages between stages, but not the replicas' all-reduce
  all,        ///< messages between stages and the replicas' all-reduce
};

/// Equal devices, numbered consecutively, the first level's neighbours first.
struct Machine {
  std::vector<Level> levels = {{}};  ///< innermost first: devices of a server, then servers
  double memory_bytes = 0;           ///< of one device; 0: no limit
  double replay_bytes = 0;           ///< for replay samples, on the first stage's device
  Overlap overlap = Overlap::none;
  /// Time of an all-reduce by the bytes that each rank sends; none: a ring over the links.
  std::optional<Link> sums;

  int devices() const {
    int product = 1;
    for (const Level& level : levels) product *= level.count;
    return product;
  }
  int level_between(int a, int b) const {
    int level = 0, size = levels.front().count;
    while (a / size != b / size && level + 1 < int(levels.size())) size *= levels[++level].count;
    return level;
  }
  const Link& link_between(int a, int b) const { return levels[level_between(a, b)].link; }
  bool operator==(const Machine&) const = default;
};

/// `devices`: "8" is eight devices, "2x8" two servers of eight; any depth. `links`: GB/s[:ms] for
/// each level in the same order, as "3.125,30:0.01"; the last one also holds for the levels within
/// it; empty: the hand-offs measured in `profile`, or free links. `overlap`: none | transfers |
/// all. Throws std::invalid_argument with the offending text.
Machine parse_machine(const std::string& devices, const std::string& links,
                      const std::string& overlap, double memory_bytes, const Profile& profile);

}  // namespace millrace::engine::plan
