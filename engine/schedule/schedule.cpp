#include "engine/schedule/schedule.h"

#include <algorithm>  // all_of
#include <limits>     // none yet
#include <map>        // table of names
#include <numeric>    // lcm
#include <set>        // distinct stages
#include <stdexcept>  // std::invalid_argument

#include "engine/schedule/schedule_csv.h"
#include "engine/schedule/generators/generators.h"

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

namespace {

/// Every action that the text holds, once, with the program it stands in.
template <class Visit>
void for_each_action(const Schedule& schedule, const Visit& visit) {
  for (int worker = 0; worker < int(schedule.workers.size()); ++worker) {
    const Program& program = schedule.workers[worker];
    for (const auto* list : {&program.prologue, &program.period}) {
      for (const Action& action : *list) visit(worker, action);
    }
  }
}

}  // namespace

int Schedule::unit(int stage, int replica) const {
  for (int before = 0; before < stage; ++before) replica += replicas_of(before);
  return replica;
}

std::int64_t Schedule::samples_a_choice() const {
  std::int64_t least = group;
  for (int stage = 0; stage < stages; ++stage)
    least = std::lcm(least, std::int64_t(samples_an_update(stage)));
  return least;
}

std::int64_t Schedule::trained(std::int64_t samples) const {
  std::int64_t least = samples;
  for (int stage = 0; stage < stages; ++stage) {
    const std::int64_t covers = samples_an_update(stage);
    least = std::min(least, samples / covers * covers);
  }
  return least;
}

std::vector<int> workers_of_units(const Schedule& schedule) {
  std::vector<int> workers(schedule.units(), 0);
  for_each_action(schedule, [&](int worker, const Action& action) {
    workers[schedule.unit(action.stage, schedule.workers[worker].replica)] = worker;
  });
  return workers;
}

StageNeeds needs_of(const Schedule& schedule, int stage) {
  StageNeeds needs;
  for_each_action(schedule, [&](int, const Action& action) {
    if (action.stage != stage) return;
    needs.split = needs.split || action.op == Op::backward_weight;
    needs.recompute = needs.recompute || action.op == Op::recompute;
  });
  return needs;
}

std::vector<std::int64_t> first_backwards(const Schedule& schedule) {
  std::vector<std::int64_t> first(schedule.stages, std::numeric_limits<std::int64_t>::max());
  for_each_action(schedule, [&](int, const Action& action) {
    if (takes_gradient(action.op))
      first[action.stage] = std::min(first[action.stage], action.sample);
  });
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
  for (const Program& program : schedule.workers) {
    std::vector<std::int64_t> newest(schedule.stages, 0), updates(schedule.stages, 0);
    std::map<std::pair<int, std::int64_t>, std::int64_t> updates_at_forward;
    const auto steady = std::int64_t(program.prologue.size() + 2 * program.period.size());
    for (std::int64_t at = 0; at < steady; ++at) {
      const Action a = program.at(at);
      Lag& lag = lags[a.stage];
      if (a.op == Op::forward) {
        newest[a.stage] = a.sample;
        updates_at_forward[{a.stage, a.sample}] = a.version >= 0 ? a.version : updates[a.stage];
      } else if (adds_gradient(a.op)) {
        lag.label = a.sample - a.gradient;
        lag.behind = schedule.group == 1
                         ? newest[a.stage] - a.sample
                         : schedule.samples_an_update(a.stage) *
                               (updates[a.stage] - updates_at_forward[{a.stage, a.sample}]);
      } else if (a.op == Op::update) {
        ++updates[a.stage];
      }
    }
  }
  return lags;
}

}  // namespace

std::vector<std::int64_t> own_gradient_ages(const Schedule& schedule) {
  std::vector<std::int64_t> ages;
  for (const Lag& lag : lags(schedule)) ages.push_back(lag.behind);
  return ages;
}

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
      {"zb-h1", schedules::zb_h1},
  };
  return table;
}

/// Before each backward of `actions` a second forward.
void add_recompute(std::vector<Action>& actions) {
  std::vector<Action> all;
  for (const Action& action : actions) {
    if (takes_gradient(action.op))
      all.push_back({Op::recompute, action.stage, action.sample, action.sample});
    all.push_back(action);
  }
  actions = std::move(all);
}

}  // namespace

void add_recompute(Schedule& schedule) {
  for (Program& program : schedule.workers) {
    add_recompute(program.prologue);
    add_recompute(program.period);
  }
}

Schedule make_schedule(const std::string& name, const ScheduleOptions& options) {
  if (options.stages < 1) throw std::invalid_argument("a schedule needs at least 1 stage");
  if (!options.replicas.empty() && name != "pipedream")
    throw std::invalid_argument(name + " has no replicated stages (pipedream has)");
  Schedule schedule;
  if (is_schedule_file(name)) {
    schedule = read_schedule_csv(name);
    if (schedule.stages != options.stages) {
      throw std::invalid_argument(name + ": has " + std::to_string(schedule.stages) +
                                  " stages, not " + std::to_string(options.stages));
    }
  } else {
    const auto generator = generators().find(name);
    if (generator == generators().end())
      throw std::invalid_argument("unknown schedule \"" + name + "\"");
    schedule = generator->second(options);
  }
  schedule.name = name;
  if (options.recompute) add_recompute(schedule);
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
