#include "engine/simulate/simulator.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <stdexcept>

#include "engine/schedule/mailbox.h"
#include "engine/simulate/simulation.h"

namespace millrace::engine {
namespace {

/// A worker that only waits for its core. The one that has waited longest comes first.
struct Turn {
  double start_ms;  ///< when the core may be free
  double ready_ms;  ///< since when the worker waits
  std::int64_t order;
  int worker;

  auto operator<=>(const Turn&) const = default;
};

struct Walker {
  std::int64_t at = 0, end = 0;
  double free_ms = 0;  ///< when the previous action ended
  bool waits = false;  ///< the next action needs a signal
  bool holds = false;  ///< the prediction waits for an earlier sample's
  SimulatedAction now;
  Lowered lowered;
};

/// Replicas of a stage before an update.
struct Meeting {
  int arrived = 0;
  double last_ms = 0;    ///< when the last one arrived
  double agreed_ms = 0;  ///< when the all-reduce ended
};

/// Handles actions in order of start, each at once; signals carry their arrival times.
class Run {
 public:
  Run(const Schedule& schedule, const SimulationInput& input)
      : schedule_(schedule),
        input_(input),
        beside_(input.machine.overlap != plan::Overlap::none),
        lowering_(schedule),
        mail_(lowering_),
        facts_(schedule, input, lowering_),
        applied_(schedule.applied(input.samples)),
        core_free_ms_(std::size_t(input.cores > 0 ? input.cores : int(schedule.workers.size())),
                      0.0),
        walkers_(schedule.workers.size()),
        meetings_(schedule.stages) {
    for (std::size_t w = 0; w < walkers_.size(); ++w)
      walkers_[w].end = schedule.workers[w].end(applied_);
  }

  Simulation run() {
    for (int worker = 0; worker < int(walkers_.size()); ++worker) advance(worker);
    while (!turns_.empty()) {
      Turn turn = turns_.top();
      turns_.pop();
      double& free_ms = core_free_ms_[std::size_t(turn.worker) % core_free_ms_.size()];
      if (free_ms > turn.start_ms) {
        turn.start_ms = free_ms;
        turns_.push(turn);
      } else {
        free_ms = work(turn.worker, turn.start_ms);
        total_ms_ = std::max(total_ms_, free_ms);
      }
    }
    for (std::size_t worker = 0; worker < walkers_.size(); ++worker) {
      if (walkers_[worker].at == walkers_[worker].end) continue;
      throw std::logic_error("schedule " + schedule_.name + " deadlocks: worker " +
                             std::to_string(worker) + " waits before " +
                             action_text(walkers_[worker].now.action, true));
    }
    return facts_.simulation(total_ms_, dropped_);
  }

 private:
  using Kind = Signal::Kind;

  static bool is_message(const Signal& signal) {
    return signal.kind == Kind::activation || signal.kind == Kind::gradient;
  }

  void advance(int worker) {
    Walker& walker = walkers_[worker];
    const Program& program = schedule_.workers[worker];
    for (; walker.at < walker.end; ++walker.at) {
      walker.now = {worker, program.at(walker.at)};
      if (walker.now.action.sample < applied_) break;
    }
    if (walker.at == walker.end) return;
    walker.lowered = lowering_(worker, walker.now.action);
    if (walker.lowered.needs.find(Kind::meeting)) return meet(walker);
    walker.waits = true;
    look(worker);
  }

  /// Makes the worker ready if it waits for signals and has all of them.
  void look(int worker) {
    Walker& walker = walkers_[worker];
    if (walker.holds) return finish(worker);
    const Signals& needs = walker.lowered.needs;
    const auto has = [&](const Signal& n) { return n.kind == Kind::prediction || mail_.has(n); };
    if (!walker.waits || !std::all_of(needs.begin(), needs.end(), has)) return;
    double ready_ms = walker.free_ms;
    for (const Signal& need : needs) {
      if (need.kind == Kind::prediction) continue;  // needed only when the action ends
      mail_.take(need, [&](double ms) { ready_ms = std::max(ready_ms, ms); });
      if (is_message(need) && !beside_) walker.now.receive_ms = message_ms(need);
    }
    if (walker.lowered.gives.find(Kind::admission)) ready_ms = admitted(ready_ms);
    ready(worker, ready_ms);
  }

  void ready(int worker, double ms) {
    walkers_[worker].waits = false;
    turns_.push({ms, ms, order_++, worker});
  }

  void meet(const Walker& walker) {
    const int stage = walker.now.action.stage, replicas = lowering_.replicas(stage);
    Meeting& meeting = meetings_[stage];
    meeting.last_ms = std::max(meeting.last_ms, walker.free_ms);
    if (++meeting.arrived < replicas) return;
    meeting.arrived = 0;
    const double ms = facts_.agree_ms(stage);
    const bool beside = input_.machine.overlap == plan::Overlap::all;
    meeting.agreed_ms =
        beside ? std::max(meeting.last_ms, meeting.agreed_ms + ms) : meeting.last_ms;
    for (int replica = 0; replica < replicas; ++replica) {
      const int other = lowering_.worker(lowering_.replica_id(stage, replica));
      if (!beside) walkers_[other].now.receive_ms = ms;
      ready(other, meeting.agreed_ms);
    }
  }

  /// The time at which a sample is admitted whose slot is free from `ms` on: once a frame is there.
  double admitted(double ms) {
    double came_ms = ms;
    if (const double period = input_.source_period_ms; period > 0) {
      const std::int64_t oldest = next_frame_;
      ms = std::max(ms, double(oldest) * period);
      next_frame_ = std::max(oldest, std::int64_t(std::min(ms / period, 1e18)));
      // A rounded quotient may be off by one.
      if (next_frame_ > oldest && double(next_frame_) * period > ms) --next_frame_;
      if (double(next_frame_ + 1) * period <= ms) ++next_frame_;
      dropped_ += next_frame_ - oldest;
      came_ms = double(next_frame_++) * period;
    }
    facts_.admitted(ms, came_ms);
    return ms;
  }

  double work(int worker, double start_ms) {
    Walker& walker = walkers_[worker];
    SimulatedAction& now = walker.now;
    const Signals& gives = walker.lowered.gives;
    now.start_ms = start_ms;
    now.compute_ms = facts_.compute_ms(now.action);
    for (const Signal& signal : gives) {
      if (is_message(signal) && !beside_) now.send_ms = message_ms(signal);
    }
    facts_.begins(now);
    const double end_ms = walker.free_ms = now.end_ms();
    for (const Signal& signal : gives) {
      if (signal.kind == Kind::admission) give(signal, start_ms);
      if (is_message(signal)) give(signal, arrival_ms(signal, end_ms));
    }
    finish(worker);
    return end_ms;
  }

  /// Ends the action, or holds it: replicas of the last stage predict in order.
  void finish(int worker) {
    Walker& walker = walkers_[worker];
    const Lowered done = walker.lowered;
    if (const Signal* const earlier = done.needs.find(Kind::prediction)) {
      walker.holds = !mail_.has(*earlier);
      if (walker.holds) return;
      mail_.take(*earlier, [&](double ms) { walker.free_ms = std::max(walker.free_ms, ms); });
    }
    const Signal* const prediction = done.gives.find(Kind::prediction);
    const double end_ms = walker.free_ms;
    if (prediction) facts_.predicted(end_ms);
    if (const Signal* const release = done.gives.find(Kind::release)) {
      facts_.released(worker, done);
      give(*release, end_ms);
    }
    ++walker.at;
    advance(worker);
    if (prediction) give(*prediction, end_ms);
  }

  /// `ms`: when the taker may use the signal.
  void give(const Signal& signal, double ms) {
    mail_.give(signal, ms);
    const int taker = signal.kind == Kind::release
                          ? lowering_.replica_with(0, signal.sample + schedule_.slots())
                          : signal.to;
    look(lowering_.worker(taker));
  }

  /// Time on the link, or time that each of the two workers spends on it.
  double message_ms(const Signal& signal) const {
    const int from = lowering_.worker(signal.from), to = lowering_.worker(signal.to);
    if (from == to) return 0;
    const bool back = signal.kind == Kind::gradient;
    const plan::StepBytes& bytes = input_.stages[signal.stage - (back ? 1 : 0)].bytes;
    return input_.machine.link_between(from, to).ms(back ? bytes.gradient : bytes.activation);
  }

  /// Sends a message that is ready at `ms`. Returns when it arrives.
  double arrival_ms(const Signal& signal, double ms) {
    const std::pair way{lowering_.worker(signal.from), lowering_.worker(signal.to)};
    if (way.first == way.second) return ms;
    if (beside_) {
      double& free_ms = link_free_ms_[way];
      ms = free_ms = std::max(free_ms, ms) + message_ms(signal);
    }
    ms += input_.delay_ms;
    total_ms_ = std::max(total_ms_, ms);  // the last messages are never read
    return ms;
  }

  const Schedule& schedule_;
  const SimulationInput& input_;
  const bool beside_;  ///< messages take none of the workers' time
  const Lowering lowering_;
  Mailbox<double> mail_;
  SimulationFacts facts_;
  const std::int64_t applied_;
  double total_ms_ = 0;
  std::int64_t order_ = 0;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns_;
  std::vector<double> core_free_ms_;
  std::map<std::pair<int, int>, double> link_free_ms_;  ///< [sending, receiving worker]
  std::vector<Walker> walkers_;
  std::vector<Meeting> meetings_;  ///< [stage]
  std::int64_t next_frame_ = 0, dropped_ = 0;
};

}  // namespace

Simulation simulate(const Schedule& schedule, const SimulationInput& input) {
  check_input(schedule, input);
  return Run(schedule, input).run();
}

}  // namespace millrace::engine
