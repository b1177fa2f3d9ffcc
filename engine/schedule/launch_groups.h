#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "engine/schedule/schedule.h"

namespace millrace::engine {

/// A run of a worker's actions launched as one; other workers get its signals when it ends. One
/// action per group always works; one period per group costs the host least.
struct LaunchGroups {
  /// One action per group.
  explicit LaunchGroups(const Schedule& schedule);

  /// Each action of a prologue is a group.
  bool ends(int worker, std::int64_t action) const {
    const std::int64_t at = action - prologues[worker];
    return at < 0 || group_ends[worker][std::size_t(at) % group_ends[worker].size()];
  }

  std::vector<std::int64_t> prologues;        ///< [worker]: its length
  std::vector<std::vector<char>> group_ends;  ///< [worker][index in its period]
};

/// One period per group, split only where workers would otherwise wait for each other's group ends,
/// as before the backwards of a flushing schedule. `schedule`: verified, without replicas.
LaunchGroups longest_launch_groups(const Schedule& schedule);

/// Adds slots for one more minibatch, so that the host can prepare samples while the device works,
/// up to a multiple of the most weight versions, and at each stage versions up to a divisor of the
/// slots: a slot always meets one weight buffer.
Schedule for_recording(Schedule schedule);

/// Samples after which every combination of slot, weight version and position in a minibatch has
/// occurred, so that each graph is recorded.
std::int64_t samples_to_record(const Schedule& schedule);

struct GroupWalk {
  bool ended = false;
  /// Workers blocked within a group, each with the index of the action in its program.
  std::vector<std::pair<int, std::int64_t>> stuck;
};

/// Walks through `samples` samples. An action starts once signals from ended groups allow and each
/// link between stages that it sends to holds fewer than `capacity`.
GroupWalk walk_groups(const Schedule& schedule, const LaunchGroups& groups, std::int64_t samples,
                      const std::function<void(int worker, const Action&)>& on_action = {},
                      const std::function<void(int worker)>& on_end = {},
                      std::size_t capacity = std::numeric_limits<std::size_t>::max());

}  // namespace millrace::engine
