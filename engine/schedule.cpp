#include "engine/schedule.h"

#include <algorithm>  // all_of
#include <limits>     // none yet
#include <map>        // table of names
#include <set>        // distinct stages
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
  if (action.version >= 0) action.version += round * updates;
  return action;
}

bool Program::over(std::int64_t index, std::int64_t samples) const {
  // Samples only grow from round to round, so one whole round tells for all that follow.
  const std::int64_t last =
      std::max<std::int64_t>(index, prologue.size()) + std::int64_t(period.size());
  for (; index < last; ++index) {
    if (at(index).sample < samples) return false;
  }
  return true;
}

std::vector<int> stages_of(const Program& program) {
  std::set<int> stages;
  for (const auto* list : {&program.prologue, &program.period}) {
    for (const Action& action : *list) stages.insert(action.stage);
  }
  return {stages.begin(), stages.end()};
}

std::vector<std::int64_t> first_backwards(const Schedule& schedule) {
  std::vector<std::int64_t> first(schedule.stages, std::numeric_limits<std::int64_t>::max());
  for (const Program& program : schedule.workers) {
    for (const auto* list : {&program.prologue, &program.period}) {
      for (const Action& action : *list) {
        if (action.op == Op::backward)
          first[action.stage] = std::min(first[action.stage], action.sample);
      }
    }
  }
  return first;
}

namespace {

/// What one stage's text says of its gradients: how far a gradient's label lags behind the sample
/// it meets, and how far the stage has moved on beyond that sample when it applies it.
struct Lag {
  std::int64_t label = 0;
  std::int64_t behind = 0;
};

std::vector<Lag> lags(const Schedule& schedule) {
  std::vector<Lag> lags(schedule.stages);
  std::vector<std::int64_t> newest(schedule.stages, 0), updates(schedule.stages, 0);
  for (const Program& program : schedule.workers) {
    std::map<std::pair<int, std::int64_t>, std::int64_t> updates_at_forward;
    const auto steady = std::int64_t(program.prologue.size() + 2 * program.period.size());
    for (std::int64_t at = 0; at < steady; ++at) {
      const Action a = program.at(at);
      Lag& lag = lags[a.stage];
      if (a.op == Op::forward) {
        newest[a.stage] = a.sample;
        updates_at_forward[{a.stage, a.sample}] = a.version >= 0 ? a.version : updates[a.stage];
      } else if (a.op == Op::backward) {
        lag.label = a.sample - a.gradient;
        lag.behind =
            schedule.group == 1
                ? newest[a.stage] - a.sample
                : schedule.group * (updates[a.stage] - updates_at_forward[{a.stage, a.sample}]);
      } else {
        ++updates[a.stage];
      }
    }
  }
  return lags;
}

}  // namespace

std::vector<std::int64_t> gradient_ages(const Schedule& schedule) {
  const std::vector<Lag> lag = lags(schedule);
  std::vector<std::int64_t> ages(schedule.stages, 0);
  std::int64_t label = 0;  // by how much labels lag on the way from the last stage
  for (int stage = schedule.stages - 1; stage >= 0; --stage) {
    label += lag[stage].label;
    ages[stage] = label + lag[stage].behind;
  }
  return ages;
}

namespace {

using Generator = Schedule (*)(const ScheduleOptions&);

const std::map<std::string, Generator>& generators() {
  static const std::map<std::string, Generator> table = {
      {"1f1b", schedules::one_forward_one_backward},
      {"2bw", schedules::pipedream_2bw},
      {"gpipe", schedules::gpipe},
      {"interleaved", schedules::interleaved},
      {"partime", schedules::partime},
      {"pb", schedules::pb},
      {"pipedream", schedules::pipedream},
      {"sequential", schedules::sequential},
  };
  return table;
}

}  // namespace

Schedule make_schedule(const std::string& name, const ScheduleOptions& options) {
  const auto generator = generators().find(name);
  if (generator == generators().end())
    throw std::invalid_argument("unknown schedule \"" + name + "\"");
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
