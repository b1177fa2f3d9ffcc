#include "engine/schedule/staircase.h"

#include <algorithm>
#include <stdexcept>

#include "engine/schedule/mailbox.h"

namespace millrace::engine {
namespace {

/// Places actions one by one, each as early as what it needs allows.
class Layout {
 public:
  Layout(const Schedule& schedule, std::int64_t samples)
      : schedule_(schedule),
        applied_(schedule.applied(samples)),
        kept_(schedule.replica_ids(), 0),
        not_before_(schedule.workers.size(), 0) {
    staircase_.rows.resize(schedule.workers.size());
    staircase_.activations.assign(schedule.stages, 0);
  }

  Staircase run() {
    std::vector<std::int64_t> at;
    const auto place = [&](int worker, std::int64_t index) {
      const Action action = schedule_.workers[worker].at(index);
      return action.sample >= applied_ || this->place(worker, lowering_(worker, action));
    };
    if (!walk_programs(schedule_, applied_, at, place))
      throw std::logic_error("schedule " + schedule_.name + " deadlocks");
    std::size_t longest = 0;
    for (const auto& row : staircase_.rows) longest = std::max(longest, row.size());
    for (auto& row : staircase_.rows) row.resize(longest);
    return std::move(staircase_);
  }

 private:
  using Row = std::vector<std::optional<Cell>>;

  /// False if something that the action needs has no time yet.
  bool place(int worker, const Lowered& next) {
    Row& row = staircase_.rows[worker];
    if (!mail_.have(next.needs, std::int64_t(row.size()))) return false;
    std::int64_t start = not_before_[worker];
    for (const Signal& need : next.needs) {
      mail_.take(need, [&](std::int64_t tick) {
        if (!orders_moments(need.kind)) start = std::max(start, tick);
      });
    }
    if (next.action.op == Op::update) {
      not_before_[worker] = start;
      if (!row.empty() && row.back()) row.back()->updates = true;
    } else {
      row.resize(std::max(row.size(), std::size_t(start)));
      row.push_back(Cell{next.action});
      count(next);
    }
    for (const Signal& signal : next.gives) mail_.give(signal, std::int64_t(row.size()));
    return true;
  }

  /// Samples are kept from the forward to the release.
  void count(const Lowered& next) {
    std::int64_t& kept = kept_[next.replica_id];
    std::int64_t& most = staircase_.activations[next.action.stage];
    if (next.action.op == Op::forward) most = std::max(most, ++kept);
    if (next.gives.find(Signal::Kind::release)) --kept;
  }

  const Schedule& schedule_;
  std::int64_t applied_;
  Lowering lowering_{schedule_};
  Mailbox<std::int64_t> mail_{lowering_};  ///< notes: the tick after which it is given
  std::vector<std::int64_t> kept_;         ///< samples between forward and release, by replica_id
  std::vector<std::int64_t> not_before_;   ///< by worker: when its replicas' last update is over
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

char op_letter(Op op) {
  return "FRBIWU"[int(op)];
}

std::string action_text(const Action& action, bool with_stage) {
  std::string text = with_stage ? std::to_string(action.stage) : "";
  text += op_letter(action.op) + std::to_string(action.sample);
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
