// Where workers whose steps defer their work may start it: as much at once as does not deadlock.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/schedule/schedule.h"

namespace millrace::engine {

/// A launch group is a stretch of a worker's program that is launched as one: what its actions
/// give, others hear of when it ends. One action a group always works; a whole period a group asks
/// the host least often.
class LaunchGroups {
 public:
  /// One action a group.
  explicit LaunchGroups(const Schedule& schedule);

  bool ends(int worker, std::int64_t action) const {
    const Marks& marks = marks_[worker];
    if (action < marks.prologue) return true;
    return marks.ends[std::size_t((action - marks.prologue) % std::int64_t(marks.ends.size()))];
  }

 private:
  friend LaunchGroups longest_launch_groups(const Schedule& schedule);
  struct Marks {
    std::int64_t prologue = 0;
    std::vector<char> ends;  ///< by place in the period
  };
  std::vector<Marks> marks_;
};

/// A whole period a group, ended early only where workers would otherwise wait for each other's
/// ends: in a flushing schedule, before the backwards. `schedule`: verified, without replicas.
LaunchGroups longest_launch_groups(const Schedule& schedule);

/// The schedule, with slots for a minibatch more, so that the host can prepare samples while the
/// device is at work, and with slots and weight versions that come round together: whatever is done
/// in a slot is then done at the same buffers of weights, and need be recorded once.
Schedule for_recording(Schedule schedule);

/// Samples after which slots, versions and minibatches have met in every way that they will.
std::int64_t samples_to_record(const Schedule& schedule);

/// Walks `schedule` for `samples` samples in an order that signals at the ends of groups allow,
/// every action once it is possible. False if it comes to a halt before.
bool walk_groups(const Schedule& schedule, const LaunchGroups& groups, std::int64_t samples,
                 const std::function<void(int worker, const Action&)>& on_action,
                 const std::function<void(int worker)>& on_end);

}  // namespace millrace::engine
