// What a step costs: the words that profile, plan and simulate share. Needs the standard library
// alone. Times are milliseconds of one sample, sizes are bytes of one sample, unless said
// otherwise.
#pragma once

#include <vector>

namespace millrace::engine::plan {

/// A step of a module or of a stage, by its parts. The update is the cost of applying one gradient,
/// however many samples it is the mean of.
struct StepCosts {
  double forward = 0;
  double input_gradient = 0;   ///< 0 in the first module, which needs none
  double weight_gradient = 0;  ///< 0 where there are no weights
  double update = 0;

  double backward() const { return input_gradient + weight_gradient; }
  double total() const { return forward + backward() + update; }

  StepCosts& operator+=(const StepCosts& other) {
    forward += other.forward;
    input_gradient += other.input_gradient;
    weight_gradient += other.weight_gradient;
    update += other.update;
    return *this;
  }
  bool operator==(const StepCosts&) const = default;
};

/// What a module or a stage holds, and what it says to its neighbours.
struct StepBytes {
  double activation = 0;  ///< its output, sent downstream
  double gradient = 0;    ///< the gradient of that output, sent back by the stage downstream
  double weight = 0;      ///< one version of its weights; the gradient of them is as large
  double state = 0;       ///< the optimizer's: momentum, moments
  double stash = 0;       ///< saved between a sample's forward and its backward
  bool operator==(const StepBytes&) const = default;
};

/// One stage, added up: what plan weighs and simulate plays.
struct StageCosts {
  StepCosts ms;
  StepBytes bytes;  ///< activation, gradient: those of the last module
  bool operator==(const StageCosts&) const = default;
};

/// A way from one device to another. A message takes latency + bytes / bandwidth.
struct Link {
  double latency_ms = 0;
  double bytes_per_ms = 0;  ///< 1 GB/s = 1e6; 0: bytes cost nothing

  double ms(double bytes) const {
    return latency_ms + (bytes_per_ms > 0 ? bytes / bytes_per_ms : 0.0);
  }
  bool operator==(const Link&) const = default;
};

/// A ring all-reduce among `members`: each sends its neighbour 2 (members - 1) pieces of
/// bytes / members (Patarasuk and Yuan, JPDC 2009). 0 for one member.
inline double all_reduce_ms(const Link& slowest, double bytes, int members) {
  if (members < 2) return 0;
  return 2.0 * (members - 1) * slowest.ms(bytes / members);
}

/// A level of the machines: `count` parts (devices, in the first level), each pair of which speaks
/// over `link`.
struct Level {
  int count = 1;
  Link link;
  bool operator==(const Level&) const = default;
};

/// What runs beside a device's computing, at no cost to it while it is the shorter of the two.
enum class Overlap {
  none,       ///< nothing: the worker itself hands over, as a CPU's does
  transfers,  ///< messages between stages; replicas agree on gradients before going on
  all,        ///< messages between stages and the agreement of replicas
};

/// Where a plan is to run: equal devices, numbered through, the first level's neighbours first.
struct Machine {
  std::vector<Level> levels = {{}};  ///< innermost first: devices of a server, then servers
  double memory_bytes = 0;           ///< of one device; 0: no limit
  double replay_bytes = 0;           ///< of the first stage's device, for samples to replay
  Overlap overlap = Overlap::none;
  /// How its ranks add up, by the bytes that each sends; not known: in a ring, over the links.
  Link sums;
  bool knows_sums = false;

  int devices() const {
    int product = 1;
    for (const Level& level : levels) product *= level.count;
    return product;
  }
  /// The outermost level that a message from device `a` to device `b` crosses.
  int level_between(int a, int b) const {
    int level = 0, size = levels.front().count;
    while (a / size != b / size && level + 1 < int(levels.size())) size *= levels[++level].count;
    return level;
  }
  const Link& link_between(int a, int b) const { return levels[level_between(a, b)].link; }
  bool operator==(const Machine&) const = default;
};

}  // namespace millrace::engine::plan
