#include "engine/schedule/turns.h"

#include <algorithm>  // max
#include <map>        // what was sent
#include <stdexcept>  // std::logic_error
#include <utility>    // keys

namespace millrace::engine {
namespace {

using Key = std::pair<int, std::int64_t>;  ///< stage, sample

/// One worker at a time, no threads: who could go on when.
class Walk {
 public:
  Walk(const Schedule& schedule, const Turns& turns, std::int64_t samples)
      : schedule_(schedule),
        turns_(turns),
        applied_(schedule.applied(samples)),
        first_backward_(first_backwards(schedule)),
        at_(schedule.workers.size(), 0),
        unsent_(schedule.workers.size()) {}

  bool run(const std::function<void(int, const Action&)>& on_action,
           const std::function<void(int)>& on_end) {
    for (bool moved = true; moved;) {
      moved = false;
      bool done = true;
      for (int worker = 0; worker < int(at_.size()); ++worker) {
        while (!over(worker) && step(worker, on_action, on_end)) moved = true;
        done = done && over(worker);
      }
      if (done) return true;
    }
    return false;
  }

  /// Where the workers stand that could not go on and keep something to themselves.
  std::vector<std::pair<int, std::int64_t>> stuck() const {
    std::vector<std::pair<int, std::int64_t>> all;
    for (int worker = 0; worker < int(at_.size()); ++worker) {
      if (!over(worker) && !unsent_[worker].empty()) all.emplace_back(worker, at_[worker]);
    }
    return all;
  }

 private:
  /// A message, or (stage + stages) a release of the sample by the stage.
  struct Sent {
    std::map<Key, int>* where;
    Key key;
  };

  bool over(int worker) const { return schedule_.workers[worker].over(at_[worker], applied_); }
  bool last(int stage) const { return stage + 1 == schedule_.stages; }

  bool possible(const Action& a) const {
    if (a.op == Op::forward && a.stage == 0) {
      const std::int64_t before = a.sample - schedule_.slots();
      const auto found = released_.find({0, before});
      return before < 0 || (found != released_.end() && found->second == schedule_.stages);
    }
    if (a.op == Op::forward) return activations_.count({a.stage - 1, a.sample}) > 0;
    if (takes_gradient(a.op) && !last(a.stage))
      return gradients_.count({a.stage + 1, a.gradient}) > 0;
    return true;
  }

  bool step(int worker, const std::function<void(int, const Action&)>& on_action,
            const std::function<void(int)>& on_end) {
    const std::int64_t at = at_[worker];
    const Action a = schedule_.workers[worker].at(at);
    if (a.sample < applied_) {
      if (!possible(a)) return false;
      if (on_action) on_action(worker, a);
      std::vector<Sent>& unsent = unsent_[worker];
      if (a.op == Op::forward) unsent.push_back({&activations_, {a.stage, a.sample}});
      if (takes_gradient(a.op)) unsent.push_back({&gradients_, {a.stage, a.sample}});
      const bool done =
          adds_gradient(a.op) || (a.op == Op::forward && a.sample < first_backward_[a.stage]);
      if (done) unsent.push_back({&released_, {0, a.sample}});
    }
    ++at_[worker];
    if (turns_.ends(worker, at) || over(worker)) {
      for (const Sent& sent : unsent_[worker]) ++(*sent.where)[sent.key];
      unsent_[worker].clear();
      if (on_end) on_end(worker);
    }
    return true;
  }

  const Schedule& schedule_;
  const Turns& turns_;
  std::int64_t applied_;
  std::vector<std::int64_t> first_backward_;
  std::vector<std::int64_t> at_;
  std::vector<std::vector<Sent>> unsent_;  ///< until the turn ends
  std::map<Key, int> activations_, gradients_, released_;
};

int most_versions(const Schedule& schedule) {
  int most = 1;
  for (int stage = 0; stage < schedule.stages; ++stage)
    most = std::max(most, schedule.versions_of(stage));
  return most;
}

}  // namespace

Turns::Turns(const Schedule& schedule) {
  for (const Program& program : schedule.workers) {
    marks_.push_back(
        {std::int64_t(program.prologue.size()), std::vector<char>(program.period.size(), true)});
  }
}

Turns longest_turns(const Schedule& schedule) {
  Turns turns(schedule);
  for (Turns::Marks& marks : turns.marks_) {
    std::fill(marks.ends.begin(), marks.ends.end(), false);
    marks.ends.back() = true;
  }
  const std::int64_t samples = samples_to_rehearse(schedule);
  for (;;) {
    Walk walk(schedule, turns, samples);
    if (walk.run(nullptr, nullptr)) return turns;
    const auto stuck = walk.stuck();
    if (stuck.empty()) throw std::logic_error("schedule " + schedule.name + " deadlocks");
    for (const auto& [worker, at] : stuck) {
      // Whoever waits while others may wait for what it has done ends its turn first.
      Turns::Marks& marks = turns.marks_[worker];
      const std::int64_t length = std::int64_t(marks.ends.size());
      marks.ends[std::size_t((at - 1 - marks.prologue + length) % length)] = true;
    }
  }
}

Schedule for_recording(Schedule schedule) {
  const int versions = most_versions(schedule), unit = versions * schedule.group;
  if (versions > 1) schedule.versions.assign(std::size_t(schedule.stages), versions);
  const int slots = schedule.in_flight + schedule.group;
  schedule.in_flight = (slots + unit - 1) / unit * unit;
  return schedule;
}

std::int64_t samples_to_rehearse(const Schedule& schedule) {
  std::int64_t begins = 0;
  for (const Program& program : schedule.workers) {
    for (const Action& action : program.period) begins = std::max(begins, action.sample);
  }
  const std::int64_t round = std::int64_t(schedule.slots()) * schedule.group;
  return schedule.applied(begins + 2 * round * most_versions(schedule) + schedule.group);
}

bool walk(const Schedule& schedule, const Turns& turns, std::int64_t samples,
          const std::function<void(int, const Action&)>& on_action,
          const std::function<void(int)>& on_end) {
  return Walk(schedule, turns, samples).run(on_action, on_end);
}

}  // namespace millrace::engine
