#include "engine/schedule/schedule.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

namespace millrace::engine {

char op_letter(Op op) {
  return "FLRBIWU"[int(op)];
}

const char* op_name(Op op) {
  static const char* const names[] = {"forward",        "backward_local",  "recompute", "backward",
                                      "backward_input", "backward_weight", "update"};
  return names[int(op)];
}

std::string action_text(const Action& action, bool with_stage) {
  std::string text = with_stage ? std::to_string(action.stage) : "";
  text += op_letter(action.op) + std::to_string(action.sample);
  if (action.version >= 0) text += "^" + std::to_string(action.version);
  if (takes_gradient(action.op) && action.gradient != action.sample)
    text += "(" + std::to_string(action.gradient) + ")";
  return text;
}

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

std::int64_t Program::end(std::int64_t samples) const {
  const auto once = std::int64_t(prologue.size()), length = std::int64_t(period.size());
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < once; ++i) {
    if (prologue[i].sample < samples) end = i + 1;
  }
  for (std::int64_t i = 0; i < length; ++i) {
    const std::int64_t first = period[i].sample;
    if (first >= samples) continue;
    const std::int64_t rounds = (samples - first + stride - 1) / stride;
    end = std::max(end, once + (rounds - 1) * length + i + 1);
  }
  return end;
}

std::vector<int> stages_of(const Program& program) {
  std::set<int> stages;
  for (const auto* list : {&program.prologue, &program.period}) {
    for (const Action& action : *list) stages.insert(action.stage);
  }
  return {stages.begin(), stages.end()};
}

namespace {

/// Calls `visit(worker, action)` for each action of prologues and periods on an existing stage.
template <class Visit>
void for_each_action(const Schedule& schedule, const Visit& visit) {
  for (int worker = 0; worker < int(schedule.workers.size()); ++worker) {
    const Program& program = schedule.workers[worker];
    for (const auto* list : {&program.prologue, &program.period}) {
      for (const Action& action : *list) {
        if (action.stage >= 0 && action.stage < schedule.stages) visit(worker, action);
      }
    }
  }
}

}  // namespace

int Schedule::most_versions() const {
  return versions.empty() ? 1 : *std::max_element(versions.begin(), versions.end());
}

int Schedule::replica_id(int stage, int replica) const {
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

std::int64_t last_sample(const Schedule& schedule, std::vector<Action> Program::*list) {
  std::int64_t last = -1;
  for (const Program& program : schedule.workers) {
    for (const Action& action : program.*list) last = std::max(last, action.sample);
  }
  return last;
}

std::vector<int> workers_of_replicas(const Schedule& schedule) {
  std::vector<int> first;  // replica_id of each stage's replica 0
  for (int stage = 0, id = 0; stage < schedule.stages; id += schedule.replicas_of(stage++))
    first.push_back(id);
  std::vector<int> workers(schedule.replica_ids(), 0);
  for_each_action(schedule, [&](int worker, const Action& action) {
    const int replica = schedule.workers[worker].replica;
    if (replica < schedule.replicas_of(action.stage))  // an unverified schedule may name a replica
                                                       // that does not exist
      workers[first[action.stage] + replica] = worker;
  });
  return workers;
}

std::vector<std::string> worker_names(const Schedule& schedule) {
  const bool staged = int(schedule.workers.size()) < schedule.stages;
  std::vector<std::string> names;
  for (const Program& program : schedule.workers) {
    const std::vector<int> own = stages_of(program);
    const int number = staged || own.empty() ? int(names.size()) : own[0];
    std::string name = (staged ? "worker " : "stage ") + std::to_string(number);
    if (!schedule.replicas.empty()) name += "." + std::to_string(program.replica);
    names.push_back(std::move(name));
  }
  return names;
}

std::vector<StageNeeds> stage_needs(const Schedule& schedule) {
  std::vector<StageNeeds> needs(schedule.stages);
  for_each_action(schedule, [&](int, const Action& action) {
    needs[action.stage].split |= action.op == Op::backward_weight;
    needs[action.stage].recompute |= action.op == Op::recompute;
    needs[action.stage].local |= action.op == Op::backward_local;
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

std::vector<std::int64_t> gradient_ages(const Schedule& schedule, bool own_losses) {
  // [stage]: samples between a gradient's own sample and the one whose activations it meets;
  // samples that the stage has forwarded since the latter.
  std::vector<std::int64_t> labels(schedule.stages, 0), ages(labels);
  for (const Program& program : schedule.workers) {
    std::vector<std::int64_t> newest(schedule.stages, 0), updates(schedule.stages, 0);
    std::map<std::pair<int, std::int64_t>, std::int64_t> updates_at_forward;
    const std::size_t periods = std::size_t(schedule.most_versions()) + 1;  // to the steady state
    const auto steady = std::int64_t(program.prologue.size() + periods * program.period.size());
    for (std::int64_t at = 0; at < steady; ++at) {
      const Action a = program.at(at);
      if (a.op == Op::forward) {
        newest[a.stage] = a.sample;
        updates_at_forward[{a.stage, a.sample}] = a.version >= 0 ? a.version : updates[a.stage];
      } else if (adds_gradient(a.op)) {
        labels[a.stage] = a.sample - a.gradient;
        ages[a.stage] = schedule.ages_by_version()
                            ? schedule.samples_an_update(a.stage) *
                                  (updates[a.stage] - updates_at_forward[{a.stage, a.sample}])
                            : newest[a.stage] - a.sample;
      } else if (a.op == Op::update) {
        ++updates[a.stage];
      }
    }
  }
  std::int64_t label = 0;  // sum over this stage and those after it
  for (int stage = schedule.stages - 1; stage >= 0 && !own_losses; --stage) {
    label += labels[stage];
    ages[stage] += label;
  }
  return ages;
}

void add_recompute(Schedule& schedule) {
  for (Program& program : schedule.workers) {
    for (auto* actions : {&program.prologue, &program.period}) {
      std::vector<Action> all;
      for (const Action& action : *actions) {
        if (takes_gradient(action.op))
          all.push_back({Op::recompute, action.stage, action.sample, action.sample});
        all.push_back(action);
      }
      *actions = std::move(all);
    }
  }
}

void add_deep_supervision(Schedule& schedule) {
  for (Program& program : schedule.workers) {
    std::vector<Action> all;
    for (const Action& action : program.period) {
      const auto add = [&](Op op) {
        if (action.stage + 1 < schedule.stages)
          all.push_back({op, action.stage, action.sample, action.sample});
      };
      if (takes_gradient(action.op)) add(Op::recompute);
      all.push_back(action);
      if (action.op == Op::forward) add(Op::backward_local);
    }
    program.period = std::move(all);
  }
}

}  // namespace millrace::engine
