#include "engine/schedule/launch_groups.h"

#include <stdexcept>

#include "engine/schedule/mailbox.h"

namespace millrace::engine {

LaunchGroups::LaunchGroups(const Schedule& schedule) {
  for (const Program& program : schedule.workers) {
    prologues.push_back(std::int64_t(program.prologue.size()));
    group_ends.emplace_back(program.period.size(), true);
  }
}

GroupWalk walk_groups(const Schedule& schedule, const LaunchGroups& groups, std::int64_t samples,
                      const std::function<void(int, const Action&)>& on_action,
                      const std::function<void(int)>& on_end, std::size_t capacity) {
  const std::int64_t applied = schedule.applied(samples);
  const Lowering lowering(schedule);
  Mailbox<char> mail(lowering, capacity);
  std::vector<std::vector<Signal>> unsent(schedule.workers.size());  // given when the group ends
  std::vector<std::int64_t> at;
  GroupWalk walk;
  walk.ended = walk_programs(schedule, applied, at, [&](int worker, std::int64_t index) {
    const Program& program = schedule.workers[std::size_t(worker)];
    const Action action = program.at(index);
    std::vector<Signal>& mine = unsent[std::size_t(worker)];
    if (action.sample < applied) {
      const Lowered next = lowering(worker, action);
      const auto ended = [&](int other) {
        return schedule.workers[std::size_t(other)].over(at[std::size_t(other)], applied);
      };
      if (!mail.have(next.needs, {}) || !mail.has_room(next.gives, ended)) return false;
      for (const Signal& need : next.needs) mail.take(need, [](char) {});
      if (on_action) on_action(worker, action);
      mine.insert(mine.end(), next.gives.begin(), next.gives.end());
    }
    if (groups.ends(worker, index) || program.over(index + 1, applied)) {
      for (const Signal& signal : mine) mail.give(signal, {});
      mine.clear();
      if (on_end) on_end(worker);
    }
    return true;
  });
  for (std::size_t worker = 0; worker < at.size(); ++worker) {
    if (!unsent[worker].empty()) walk.stuck.emplace_back(int(worker), at[worker]);
  }
  return walk;
}

LaunchGroups longest_launch_groups(const Schedule& schedule) {
  LaunchGroups groups(schedule);
  for (std::vector<char>& ends : groups.group_ends) {
    ends.assign(ends.size(), false);
    ends.back() = true;
  }
  const std::int64_t samples = samples_to_record(schedule);
  for (;;) {
    const GroupWalk walk = walk_groups(schedule, groups, samples);
    if (walk.ended) return groups;
    if (walk.stuck.empty()) throw std::logic_error("schedule " + schedule.name + " deadlocks");
    for (const auto& [worker, at] : walk.stuck) {
      // Others may wait for actions of this open group: end it before the blocked action.
      std::vector<char>& ends = groups.group_ends[std::size_t(worker)];
      const std::int64_t before = at - 1 - groups.prologues[std::size_t(worker)];
      (before < 0 ? ends.back() : ends[std::size_t(before) % ends.size()]) = true;
    }
  }
}

Schedule for_recording(Schedule schedule) {
  const int round = schedule.most_versions() * schedule.group;
  const int slots = schedule.in_flight + schedule.group;
  schedule.in_flight = (slots + round - 1) / round * round;
  for (int& versions : schedule.versions)
    while (schedule.in_flight / schedule.group % versions != 0) ++versions;
  return schedule;
}

std::int64_t samples_to_record(const Schedule& schedule) {
  const std::int64_t begins = last_sample(schedule, &Program::period);
  const std::int64_t round = std::int64_t(schedule.slots()) * schedule.group;
  return schedule.applied(begins + 2 * round * schedule.most_versions() + schedule.group);
}

}  // namespace millrace::engine
