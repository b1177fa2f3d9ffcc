#include "engine/schedule.h"

#include <algorithm>  // all_of
#include <map>        // table of names
#include <stdexcept>  // std::invalid_argument

#include "engine/schedules/generators.h"

namespace millrace::engine {

Action Program::at(std::int64_t index) const {
  const auto once = std::int64_t(prologue.size());
  if (index < once) return prologue[index];
  const auto length = std::int64_t(period.size());
  const std::int64_t round = (index - once) / length;
  Action action = period[(index - once) % length];
  action.sample += round * stride;
  action.gradient += round * stride;
  return action;
}

bool Program::over(std::int64_t index, std::int64_t samples) const {
  // Samples only grow from round to round, so one whole round tells for all that follow.
  const std::int64_t last = std::max<std::int64_t>(index, prologue.size()) + std::int64_t(period.size());
  for (; index < last; ++index) {
    if (at(index).sample < samples) return false;
  }
  return true;
}

std::vector<std::int64_t> gradient_ages(const Schedule& schedule) {
  std::vector<std::int64_t> lag(schedule.stages, 0);
  for (const Program& program : schedule.workers) {
    for (const Action& action : program.period) {
      if (action.op == Op::backward) lag[action.stage] = action.sample - action.gradient;
    }
  }
  // A gradient was as old downstream as it was there, and has aged by this stage's own lag.
  for (int stage = schedule.stages - 2; stage >= 0; --stage) lag[stage] += lag[stage + 1];
  return lag;
}

namespace {

using Generator = Schedule (*)(const ScheduleOptions&);

const std::map<std::string, Generator>& generators() {
  static const std::map<std::string, Generator> table = {
      {"partime", schedules::partime},
      {"sequential", schedules::sequential},
  };
  return table;
}

}  // namespace

Schedule make_schedule(const std::string& name, const ScheduleOptions& options) {
  const auto generator = generators().find(name);
  if (generator == generators().end()) throw std::invalid_argument("unknown schedule \"" + name + "\"");
  if (options.stages < 1) throw std::invalid_argument("a schedule needs at least 1 stage");
  Schedule schedule = generator->second(options);
  schedule.name = name;
  return schedule;
}

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& [name, generator] : generators()) list.push_back(name);
    return list;
  }();
  return names;
}

}  // namespace millrace::engine
