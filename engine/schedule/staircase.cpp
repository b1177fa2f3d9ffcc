#include "engine/schedule/staircase.h"

#include <algorithm>  // max
#include <map>        // finishing times
#include <stdexcept>  // std::logic_error

namespace millrace::engine {
namespace {

using Key = std::pair<int, std::int64_t>;  ///< stage, sample

/// Places actions one by one, each as early as what it needs allows.
class Layout {
 public:
  Layout(const Schedule& schedule, std::int64_t samples)
      : schedule_(schedule), applied_(schedule.applied(samples)), at_(schedule.workers.size(), 0) {
    staircase_.rows.resize(schedule.workers.size());
    staircase_.activations.assign(schedule.stages, 0);
    kept_.assign(schedule.units(), 0);
    not_before_.assign(schedule.workers.size(), 0);
  }

  Staircase run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t worker = 0; worker < at_.size(); ++worker) {
        while (!schedule_.workers[worker].over(at_[worker], applied_) && place(int(worker)))
          moved = true;
      }
    }
    for (std::size_t worker = 0; worker < at_.size(); ++worker) {
      if (!schedule_.workers[worker].over(at_[worker], applied_)) {
        throw std::logic_error("schedule " + schedule_.name + " deadlocks");
      }
    }
    std::size_t longest = 0;
    for (const auto& row : staircase_.rows) longest = std::max(longest, row.size());
    for (auto& row : staircase_.rows) row.resize(longest);
    return std::move(staircase_);
  }

 private:
  /// Places the worker's next action; false if something it needs has no time yet.
  bool place(int worker) {
    const Action action = schedule_.workers[worker].at(at_[worker]);
    auto& row = staircase_.rows[worker];
    if (action.sample < applied_) {
      if (action.op == Op::update) {
        if (!update(worker, action)) return false;
        if (!row.empty() && row.back()) row.back()->updates = true;
      } else {
        const std::int64_t start = std::max(ready(action), not_before_[worker]);
        if (ready(action) < 0) return false;
        row.resize(std::max<std::size_t>(row.size(), std::size_t(start)));
        row.push_back(Cell{action});
        finish(action, std::int64_t(row.size()));
      }
    }
    ++at_[worker];
    return true;
  }

  /// The first tick at which `action` has what it needs; -1 if that is not known yet.
  std::int64_t ready(const Action& action) const {
    const bool last = action.stage + 1 == schedule_.stages;
    switch (action.op) {
      case Op::backward:
      case Op::backward_input:
        return last ? 0 : time_of(backward_, {action.stage + 1, action.gradient});
      case Op::forward:
        return action.stage > 0 ? time_of(forward_, {action.stage - 1, action.sample})
                                : admission(action.sample);
      default:
        return 0;  // what it needs is the worker's own
    }
  }

  /// When the slot's last sample has left every stage.
  std::int64_t admission(std::int64_t sample) const {
    if (sample < schedule_.in_flight) return 0;
    std::int64_t free = 0;
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      const std::int64_t left = time_of(left_, {stage, sample - schedule_.in_flight});
      if (left < 0) return -1;
      free = std::max(free, left);
    }
    return free;
  }

  /// Replicas update together, when the last of them has its gradients; false while one has not.
  bool update(int worker, const Action& action) {
    const int replicas = schedule_.replicas_of(action.stage);
    if (replicas == 1) return true;
    for (std::int64_t m = action.sample - schedule_.samples_an_update(action.stage) + 1;
         m <= action.sample; ++m) {
      const std::int64_t left = time_of(left_, {action.stage, m});
      if (left < 0) return false;
      not_before_[worker] = std::max(not_before_[worker], left);
    }
    return true;
  }

  void finish(const Action& action, std::int64_t time) {
    const Key key{action.stage, action.sample};
    std::int64_t& kept =
        kept_[schedule_.unit(action.stage, schedule_.replica_of(action.stage, action.sample))];
    if (takes_gradient(action.op)) backward_[key] = time;
    if (adds_gradient(action.op)) {
      left_[key] = time;
      --kept;
    }
    if (action.op != Op::forward) return;
    forward_[key] = time;
    staircase_.activations[action.stage] = std::max(staircase_.activations[action.stage], kept + 1);
    if (action.sample < first_backward_[action.stage]) {
      left_[key] = time;
    } else {
      ++kept;
    }
  }

  static std::int64_t time_of(const std::map<Key, std::int64_t>& times, Key key) {
    const auto found = times.find(key);
    return found == times.end() ? -1 : found->second;
  }

  const Schedule& schedule_;
  std::int64_t applied_;
  std::vector<std::int64_t> first_backward_ = first_backwards(schedule_);
  std::vector<std::int64_t> at_;                    ///< next action, by worker
  std::map<Key, std::int64_t> forward_, backward_;  ///< the tick after which it is done
  std::map<Key, std::int64_t> left_;  ///< the tick after which the stage needs the sample no more
  std::vector<std::int64_t> kept_;    ///< samples between forward and backward, by unit
  std::vector<std::int64_t> not_before_;  ///< by worker: when its replicas' last update is over
  Staircase staircase_;
};

}  // namespace

double Staircase::bubble() const {
  std::size_t busy = 0, all = 0;
  for (const auto& row : rows) {
    all += row.size();
    for (const auto& cell : row) busy += cell.has_value();
  }
  return all > 0 ? 1.0 - double(busy) / double(all) : 0.0;
}

Staircase draw_staircase(const Schedule& schedule, std::int64_t samples) {
  return Layout(schedule, samples).run();
}

std::string action_text(const Action& action, bool with_stage) {
  std::string text = with_stage ? std::to_string(action.stage) : "";
  text += "FRBIWU"[int(action.op)] + std::to_string(action.sample);
  if (action.version >= 0) text += "^" + std::to_string(action.version);
  if (takes_gradient(action.op) && action.gradient != action.sample) {
    text += "(" + std::to_string(action.gradient) + ")";
  }
  return text;
}

bool flushes(const Schedule& schedule) {
  return schedule.group > 1 && std::all_of(schedule.versions.begin(), schedule.versions.end(),
                                           [](int versions) { return versions == 1; });
}

}  // namespace millrace::engine
