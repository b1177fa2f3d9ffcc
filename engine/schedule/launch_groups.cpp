#include "engine/schedule/launch_groups.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "engine/schedule/mailbox.h"

namespace millrace::engine {
namespace {

/// Walks the workers through their programs, one at a time, without threads. Signals are given at
/// the ends of groups.
class GroupWalk {
 public:
  GroupWalk(const Schedule& schedule, const LaunchGroups& groups, std::int64_t samples)
      : schedule_(schedule),
        groups_(groups),
        applied_(schedule.applied(samples)),
        unsent_(schedule.workers.size()) {}

  bool run(const std::function<void(int, const Action&)>& on_action,
           const std::function<void(int)>& on_end) {
    return walk_programs(schedule_, applied_, at_, [&](int worker, std::int64_t at) {
      const Program& program = schedule_.workers[worker];
      const Action action = program.at(at);
      std::vector<Signal>& unsent = unsent_[worker];
      if (action.sample < applied_) {
        const Lowered next = lowering_(worker, action);
        if (!mail_.have(next.needs, {})) return false;
        for (const Signal& need : next.needs) mail_.take(need, [](char) {});
        if (on_action) on_action(worker, action);
        unsent.insert(unsent.end(), next.gives.begin(), next.gives.end());
      }
      if (groups_.ends(worker, at) || program.over(at + 1, applied_)) {
        for (const Signal& signal : unsent) mail_.give(signal, {});
        unsent.clear();
        if (on_end) on_end(worker);
      }
      return true;
    });
  }

  /// The workers that could not go on within a group: worker, action.
  std::vector<std::pair<int, std::int64_t>> stuck() const {
    std::vector<std::pair<int, std::int64_t>> all;
    for (int worker = 0; worker < int(at_.size()); ++worker) {
      if (!unsent_[worker].empty()) all.emplace_back(worker, at_[worker]);
    }
    return all;
  }

 private:
  const Schedule& schedule_;
  const LaunchGroups& groups_;
  std::int64_t applied_;
  Lowering lowering_{schedule_};
  Mailbox<char> mail_{lowering_};
  std::vector<std::int64_t> at_;
  std::vector<std::vector<Signal>> unsent_;  ///< by worker: until its group ends
};

}  // namespace

LaunchGroups::LaunchGroups(const Schedule& schedule) {
  for (const Program& program : schedule.workers) {
    marks_.push_back(
        {std::int64_t(program.prologue.size()), std::vector<char>(program.period.size(), true)});
  }
}

LaunchGroups longest_launch_groups(const Schedule& schedule) {
  LaunchGroups groups(schedule);
  for (LaunchGroups::Marks& marks : groups.marks_) {
    std::fill(marks.ends.begin(), marks.ends.end(), false);
    marks.ends.back() = true;
  }
  const std::int64_t samples = samples_to_record(schedule);
  for (;;) {
    GroupWalk walk(schedule, groups, samples);
    if (walk.run(nullptr, nullptr)) return groups;
    const auto stuck = walk.stuck();
    if (stuck.empty()) throw std::logic_error("schedule " + schedule.name + " deadlocks");
    for (const auto& [worker, at] : stuck) {
      // Others may wait for what this worker has done: end its group before the action.
      LaunchGroups::Marks& marks = groups.marks_[worker];
      const std::int64_t length = std::int64_t(marks.ends.size());
      marks.ends[std::size_t((at - 1 - marks.prologue + length) % length)] = true;
    }
  }
}

Schedule for_recording(Schedule schedule) {
  const int versions = schedule.most_versions(), round = versions * schedule.group;
  if (versions > 1) schedule.versions.assign(std::size_t(schedule.stages), versions);
  const int slots = schedule.in_flight + schedule.group;
  schedule.in_flight = (slots + round - 1) / round * round;
  return schedule;
}

std::int64_t samples_to_record(const Schedule& schedule) {
  std::int64_t begins = 0;
  for (const Program& program : schedule.workers) {
    for (const Action& action : program.period) begins = std::max(begins, action.sample);
  }
  const std::int64_t round = std::int64_t(schedule.slots()) * schedule.group;
  return schedule.applied(begins + 2 * round * schedule.most_versions() + schedule.group);
}

bool walk_groups(const Schedule& schedule, const LaunchGroups& groups, std::int64_t samples,
                 const std::function<void(int, const Action&)>& on_action,
                 const std::function<void(int)>& on_end) {
  return GroupWalk(schedule, groups, samples).run(on_action, on_end);
}

}  // namespace millrace::engine
