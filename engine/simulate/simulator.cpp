#include "engine/simulate/simulator.h"

#include <algorithm>
#include <map>
#include <queue>
#include <stdexcept>

#include "engine/simulate/simulation.h"

namespace millrace::engine {
namespace {

struct Event {
  enum class Kind { done, agreed, frame, message };

  double ms;
  std::int64_t order;  ///< equal times: in the order of their causes
  Kind kind;
  int worker = 0;           ///< done, agreed
  Wire* wire = nullptr;     ///< message
  std::int64_t sample = 0;  ///< message: what it is about

  bool operator>(const Event& other) const {
    return ms != other.ms ? ms > other.ms : order > other.order;
  }
};

struct Core {
  bool busy = false;
  std::queue<int> queue;  ///< workers that need it
};

/// A worker on its way through its program.
struct Walker {
  /// The next action needs something, waits for its replicas, waits for a core, is at work; its
  /// prediction waits for an earlier sample's; the program is over.
  enum class State { needs, meets, queues, works, holds, over };

  std::int64_t at = 0;
  std::int64_t end = 0;
  State state = State::needs;
  Wire* wire = nullptr;  ///< State::needs: it waits for a message; null: for admission
  SimulatedAction now;
  Lowered lowered;
};

class Run {
 public:
  Run(const Schedule& schedule, const SimulationInput& input)
      : schedule_(schedule),
        input_(input),
        lowering_(schedule),
        wires_(lowering_, input),
        facts_(schedule, input, lowering_),
        applied_(schedule.applied(input.samples)),
        cores_(std::size_t(input.cores > 0 ? input.cores : int(schedule.workers.size()))),
        walkers_(schedule.workers.size()),
        left_(schedule.in_flight, schedule.stages),
        met_(schedule.stages, 0),
        agreed_(schedule.stages, 0.0) {
    for (std::size_t w = 0; w < walkers_.size(); ++w)
      walkers_[w].end = schedule.workers[w].end(applied_);
  }

  Simulation run() {
    for (int worker = 0; worker < int(walkers_.size()); ++worker) advance(worker);
    while (!next_.empty()) {
      const Event event = next_.top();
      next_.pop();
      now_ = event.ms;
      if (event.kind == Event::Kind::done) finish(event.worker);
      if (event.kind == Event::Kind::agreed) take_core(event.worker);
      if (event.kind == Event::Kind::frame) admit_next();
      if (event.kind == Event::Kind::message) deliver(*event.wire, event.sample);
    }
    for (std::size_t worker = 0; worker < walkers_.size(); ++worker) {
      if (walkers_[worker].state == Walker::State::over) continue;
      throw std::logic_error("schedule " + schedule_.name + " deadlocks: worker " +
                             std::to_string(worker) + " waits before " +
                             action_text(walkers_[worker].now.action, true));
    }
    return facts_.simulation(now_, dropped_);
  }

 private:
  using Kind = Signal::Kind;

  void at(double ms, Event::Kind kind, int worker, Wire* wire = nullptr, std::int64_t sample = 0) {
    next_.push({ms, order_++, kind, worker, wire, sample});
  }

  /// To the worker's next action, which begins if it can.
  void advance(int worker) {
    Walker& walker = walkers_[worker];
    const Program& program = schedule_.workers[worker];
    for (; walker.at < walker.end; ++walker.at) {
      walker.now = {worker, program.at(walker.at)};
      if (walker.now.action.sample < applied_) break;
    }
    walker.state = walker.at < walker.end ? Walker::State::needs : Walker::State::over;
    if (walker.state != Walker::State::needs) return;
    walker.lowered = lowering_(worker, walker.now.action);
    if (!has_all(walker)) return;
    take_core(worker);
  }

  /// Takes what the action needs, or notes what it waits for. Admission and prediction are in order
  /// anyway.
  bool has_all(Walker& walker) {
    walker.wire = nullptr;
    for (const Signal& need : walker.lowered.needs) {
      if (orders_moments(need.kind)) continue;
      if (need.kind == Kind::release && !admitted(walker.now.action)) return false;
      if (need.kind == Kind::meeting && !meets(walker)) return false;
      if ((need.kind == Kind::activation || need.kind == Kind::gradient) && !takes(walker, need))
        return false;
    }
    return true;
  }

  bool takes(Walker& walker, const Signal& need) {
    Wire& wire = wires_.of(need);
    walker.wire = &wire;
    if (wire.arrived.empty()) return false;
    if (wire.arrived.front() != need.sample)
      throw std::logic_error("a link delivers another sample than the schedule says");
    wire.arrived.pop_front();
    if (input_.machine.overlap == plan::Overlap::none) walker.now.receive_ms = wire.ms;
    return true;
  }

  /// In order, once the slot's last sample has left every stage and a frame is there.
  bool admitted(const Action& a) {
    int& left = left_[a.sample % schedule_.in_flight];
    if (a.sample != next_admitted_ || left < schedule_.stages) return false;
    double came = now_;
    if (const double period = input_.source_period_ms; period > 0) {
      if (now_ < double(next_frame_) * period) {
        at(double(next_frame_) * period, Event::Kind::frame, 0);
        return false;
      }
      const std::int64_t oldest = next_frame_;
      next_frame_ = std::max(oldest, std::int64_t(std::min(now_ / period, 1e18)));
      // A quotient may be off by one.
      if (next_frame_ > oldest && double(next_frame_) * period > now_) --next_frame_;
      if (double(next_frame_ + 1) * period <= now_) ++next_frame_;
      dropped_ += next_frame_ - oldest;
      came = double(next_frame_++) * period;
    }
    left = 0;
    facts_.admitted(now_, came);
    return true;
  }

  /// If a worker waits to admit the next sample, it tries again.
  void admit_next() {
    const int worker = lowering_.worker(lowering_.replica_with(0, next_admitted_));
    const Walker& walker = walkers_[worker];
    if (walker.state == Walker::State::needs && walker.lowered.gives.find(Kind::admission) &&
        walker.now.action.sample == next_admitted_) {
      advance(worker);
    }
  }

  /// Replicas begin an update together.
  bool meets(Walker& walker) {
    const int stage = walker.now.action.stage, replicas = lowering_.replicas(stage);
    walker.state = Walker::State::meets;
    if (++met_[stage] < replicas) return false;
    met_[stage] = 0;
    const double ms = facts_.agree_ms(stage);
    const bool beside = input_.machine.overlap == plan::Overlap::all;
    agreed_[stage] = beside ? std::max(now_, agreed_[stage] + ms) : now_;
    for (int replica = 0; replica < replicas; ++replica) {
      const int other = lowering_.worker(lowering_.replica_id(stage, replica));
      if (!beside) walkers_[other].now.receive_ms = ms;
      at(agreed_[stage], Event::Kind::agreed, other);
    }
    return false;
  }

  Core& core_of(int worker) { return cores_[std::size_t(worker) % cores_.size()]; }

  void take_core(int worker) {
    Core& core = core_of(worker);
    if (!core.busy) {
      core.busy = true;
      work(worker);
    } else {
      walkers_[worker].state = Walker::State::queues;
      core.queue.push(worker);
    }
  }

  void work(int worker) {
    SimulatedAction& now = walkers_[worker].now;
    walkers_[worker].state = Walker::State::works;
    now.start_ms = now_;
    now.compute_ms = facts_.compute_ms(now.action);
    const Wire* wire = outgoing(walkers_[worker].lowered);
    if (wire && input_.machine.overlap == plan::Overlap::none) now.send_ms = wire->ms;
    facts_.begins(now);
    at(now.end_ms(), Event::Kind::done, worker);
    if (!walkers_[worker].lowered.gives.find(Kind::admission)) return;
    ++next_admitted_;
    admit_next();
  }

  /// The wire that carries the action's result; null: it stays.
  Wire* outgoing(const Lowered& action) {
    for (const Kind kind : {Kind::activation, Kind::gradient}) {
      if (const Signal* signal = action.gives.find(kind)) return &wires_.of(*signal);
    }
    return nullptr;
  }

  void finish(int worker) {
    const Lowered done = walkers_[worker].lowered;
    Core& core = core_of(worker);
    core.busy = !core.queue.empty();
    if (core.busy) {
      work(core.queue.front());
      core.queue.pop();
    }
    if (Wire* wire = outgoing(done)) send(*wire, done.action.sample);
    if (done.gives.find(Kind::prediction)) {
      walkers_[worker].state = Walker::State::holds;
      held_[done.action.sample] = worker;
      predict_held();
    } else {
      end(worker);
    }
  }

  /// Replicas of the last stage predict in order, and wait for that.
  void predict_held() {
    while (!held_.empty() && held_.begin()->first == next_predicted_) {
      const int worker = held_.begin()->second;
      held_.erase(held_.begin());
      ++next_predicted_;
      facts_.predicted(now_);
      end(worker);
    }
  }

  void end(int worker) {
    const Lowered done = walkers_[worker].lowered;
    ++walkers_[worker].at;
    if (facts_.ends(worker, done)) {
      const std::int64_t sample = done.action.sample;
      if (++left_[sample % schedule_.in_flight] == schedule_.stages) admit_next();
    }
    advance(worker);
  }

  void send(Wire& wire, std::int64_t sample) {
    const bool beside = input_.machine.overlap != plan::Overlap::none;
    if (!wire.link_free || (!beside && input_.delay_ms == 0)) return deliver(wire, sample);
    double sent = now_;
    if (beside) sent = *wire.link_free = std::max(*wire.link_free, now_) + wire.ms;
    at(sent + input_.delay_ms, Event::Kind::message, wire.to, &wire, sample);
  }

  void deliver(Wire& wire, std::int64_t sample) {
    wire.arrived.push_back(sample);
    const Walker& to = walkers_[wire.to];
    if (to.state == Walker::State::needs && to.wire == &wire) advance(wire.to);
  }

  const Schedule& schedule_;
  const SimulationInput& input_;
  Lowering lowering_;
  Wires wires_;
  SimulationFacts facts_;
  std::int64_t applied_;
  double now_ = 0;
  std::int64_t order_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> next_;
  std::vector<Core> cores_;
  std::vector<Walker> walkers_;
  std::vector<int> left_;  ///< by slot: stages that its sample has left
  std::int64_t next_admitted_ = 0, next_frame_ = 0, dropped_ = 0, next_predicted_ = 0;
  std::vector<int> met_;              ///< by stage: replicas that wait in an update
  std::vector<double> agreed_;        ///< by stage: when the all-reduce was over
  std::map<std::int64_t, int> held_;  ///< predictions that wait for earlier ones: sample, worker
};

}  // namespace

Simulation simulate(const Schedule& schedule, const SimulationInput& input) {
  check_input(schedule, input);
  return Run(schedule, input).run();
}

}  // namespace millrace::engine
