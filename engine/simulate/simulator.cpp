#include "engine/simulate/simulator.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <queue>
#include <stdexcept>

#include "engine/monitor/median.h"
#include "engine/schedule/mailbox.h"

namespace millrace::engine {
namespace {

void require(bool fine, const std::string& what) {
  if (!fine) throw std::invalid_argument(what);
}

bool fine_number(double value) {
  return std::isfinite(value) && value >= 0;
}

/// Throws std::invalid_argument, one line, for the first invalid value.
void check_input(const Schedule& schedule, const SimulationInput& input) {
  require(int(input.stages.size()) == schedule.stages,
          "costs are for " + std::to_string(input.stages.size()) + " stages, the schedule has " +
              std::to_string(schedule.stages));
  for (std::size_t i = 0; i < input.stages.size(); ++i) {
    const auto& [ms, bytes] = input.stages[i];
    for (const double cost :
         {ms.forward, ms.input_gradient, ms.weight_gradient, ms.update, bytes.activation,
          bytes.gradient, bytes.weight, bytes.state, bytes.stash}) {
      require(fine_number(cost), "a cost of stage " + std::to_string(i) + " is no number >= 0");
    }
  }
  for (const plan::Level& level : input.machine.levels) {
    require(fine_number(level.link.latency_ms) && fine_number(level.link.bytes_per_ms),
            "a link's latency or bandwidth is no number >= 0");
  }
  require(!input.machine.levels.empty(), "the machine has no devices");
  require(
      input.machine.levels.size() == 1 || input.machine.devices() >= int(schedule.workers.size()),
      "the machine has " + std::to_string(input.machine.devices()) + " devices, the schedule " +
          std::to_string(schedule.workers.size()) + " workers");
  require(fine_number(input.input_bytes), "the input's bytes are no number >= 0");
  require(fine_number(input.delay_ms), "the message delay must be a number >= 0");
  require(fine_number(input.overhead_ms), "the overhead of an action must be a number >= 0");
  require(std::isfinite(input.contention) && input.contention > 0, "contention must be above 0");
  require(fine_number(input.source_period_ms), "the source's period must be a number >= 0");
  require(input.cores >= 0, "cores must be 0 (one a worker) or more");
  require(input.samples >= 1, "a simulation needs at least 1 sample");
  require(schedule.applied(input.samples) > 0, std::to_string(input.samples) +
                                                   " samples do not fill a minibatch of " +
                                                   std::to_string(schedule.group));
}

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
  double agree_ms = 0;  ///< of the all-reduce
  int arrived = 0;
  double last_ms = 0;    ///< when the last one arrived
  double agreed_ms = 0;  ///< when the all-reduce ended
};

/// Samples and bytes that a replica or a worker holds.
struct Held {
  std::int64_t samples = 0, most_samples = 0;
  double bytes = 0, most_bytes = 0;
  void add(std::int64_t count, double size) {
    samples += count;
    bytes += size;
    most_samples = std::max(most_samples, samples);
    most_bytes = std::max(most_bytes, bytes);
  }
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
        applied_(schedule.applied(input.samples)),
        core_free_ms_(std::size_t(input.cores > 0 ? input.cores : int(schedule.workers.size())),
                      0.0),
        walkers_(schedule.workers.size()),
        meetings_(schedule.stages),
        by_replica_(lowering_.replica_ids()),
        by_worker_(schedule.workers.size()) {
    made_.workers.resize(schedule.workers.size());
    for (int stage = 0; stage < schedule.stages; ++stage)
      meetings_[stage].agree_ms = agree_ms(stage);
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
        made_.total_ms = std::max(made_.total_ms, free_ms);
      }
    }
    for (std::size_t worker = 0; worker < walkers_.size(); ++worker) {
      if (walkers_[worker].at == walkers_[worker].end) continue;
      throw std::logic_error("schedule " + schedule_.name + " deadlocks: worker " +
                             std::to_string(worker) + " waits before " +
                             action_text(walkers_[worker].now.action, true));
    }
    made_.samples = std::int64_t(predicted_.size());
    made_.frames = input_.frames;
    made_.gradient_age = gradient_ages(schedule_);
    set_period();
    set_latency();
    set_memory();
    return std::move(made_);
  }

 private:
  using Kind = Signal::Kind;

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
      if (need.crosses_cut() && !beside_) walker.now.receive_ms = message_ms(need);
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
    const double ms = meeting.agree_ms;
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
      made_.dropped += next_frame_ - oldest;
      came_ms = double(next_frame_++) * period;
    }
    last_admission_ = ms;
    came_.push_back(came_ms);
    return ms;
  }

  double work(int worker, double start_ms) {
    Walker& walker = walkers_[worker];
    SimulatedAction& now = walker.now;
    const Signals& gives = walker.lowered.gives;
    now.start_ms = start_ms;
    now.compute_ms = compute_ms(now.action);
    for (const Signal& signal : gives) {
      if (signal.crosses_cut() && !beside_) now.send_ms = message_ms(signal);
    }
    begins(now);
    const double end_ms = walker.free_ms = now.end_ms();
    for (const Signal& signal : gives) {
      if (signal.kind == Kind::admission) give(signal, start_ms);
      if (signal.crosses_cut()) give(signal, arrival_ms(signal, end_ms));
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
    if (prediction) predicted_.push_back(end_ms);
    if (const Signal* const release = done.gives.find(Kind::release)) {
      released(worker, done);
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
    made_.total_ms = std::max(made_.total_ms, ms);  // the last messages are never read
    return ms;
  }

  double compute_ms(const Action& action) const {
    if (input_.ticks) return action.op == Op::update ? 0 : 1;
    const plan::StepCosts& ms = input_.stages[action.stage].ms;
    const double by_op[] = {ms.forward,        ms.weight_gradient, ms.forward, ms.backward(),
                            ms.input_gradient, ms.weight_gradient, ms.update};
    return by_op[int(action.op)] * input_.contention + input_.overhead_ms;
  }
  /// The stage's replicas' all-reduce, over the slowest of the links between neighbours in a ring.
  double agree_ms(int stage) const {
    const int first = lowering_.replica_id(stage, 0), members = lowering_.replicas(stage);
    const double bytes = input_.stages[stage].bytes.weight;
    plan::Link slowest;
    double most = -1;
    for (int i = 0; i + 1 < members; ++i) {  // the ring's ends are its farthest members
      const plan::Link& link = input_.machine.link_between(lowering_.worker(first + i),
                                                           lowering_.worker(first + members - 1));
      if (link.ms(bytes / members) > most) slowest = link;
      most = std::max(most, link.ms(bytes / members));
    }
    return plan::all_reduce_ms(slowest, bytes, members);
  }

  void begins(const SimulatedAction& now) {
    made_.workers[now.worker].compute_ms += now.compute_ms;
    made_.workers[now.worker].handoff_ms += now.receive_ms + now.send_ms;
    if (input_.events) made_.events.push_back(now);
    // With recompute, a stage holds only a sample's input until it recomputes the activations.
    const Action& a = now.action;
    const double stash = input_.stages[a.stage].bytes.stash;
    const int replica_id = lowering_.replica_with(a.stage, a.sample);
    if (a.op == Op::forward)
      keep(now.worker, replica_id, 1, lowering_.recomputes(a.stage) ? input_bytes(a.stage) : stash);
    if (a.op == Op::recompute) keep(now.worker, replica_id, 0, stash);
  }
  /// Frees what the stage held for the sample.
  void released(int worker, const Lowered& done) {
    const Action& a = done.action;
    const double stash = input_.stages[a.stage].bytes.stash;
    double bytes = stash;
    if (lowering_.recomputes(a.stage))
      bytes = input_bytes(a.stage) + (a.op == Op::forward ? 0.0 : stash);
    keep(worker, done.replica_id, -1, -bytes);
  }

  void keep(int worker, int replica_id, std::int64_t samples, double bytes) {
    by_replica_[replica_id].add(samples, bytes);
    by_worker_[worker].add(samples, bytes);
  }
  void set_period() {
    std::vector<double> steps;
    for (std::size_t m = 1; m < predicted_.size(); ++m)
      steps.push_back(predicted_[m] - predicted_[m - 1]);
    made_.step_p50_ms = quantile(steps, 0.5);
    // After the last admission the pipeline drains, faster. A flush drains each time.
    const std::int64_t count = made_.samples, together = schedule_.samples_a_choice();
    const auto before = std::upper_bound(predicted_.begin(), predicted_.end(), last_admission_);
    const std::int64_t undrained = (before - predicted_.begin()) / together * together;
    const std::int64_t end = undrained >= 2 * together ? undrained : count / together * together;
    const std::int64_t half = end / 2 / together * together;
    if (half == 0) {
      made_.period_ms = made_.total_ms / double(count);
      return;
    }
    made_.period_ms = (predicted_[end - 1] - predicted_[end - 1 - half]) / double(half);
    made_.settled = end - 1 - half > last_sample(schedule_, &Program::prologue) &&
                    (end == undrained || schedule_.flushes());
  }
  void set_latency() {
    std::vector<double> latencies;
    for (std::size_t m = 0; m < predicted_.size(); ++m)
      latencies.push_back(predicted_[m] - came_[m]);
    made_.latency_p50_ms = quantile(latencies, 0.5);
    made_.latency_p99_ms = quantile(latencies, 0.99);
    made_.latency_max_ms = *std::max_element(latencies.begin(), latencies.end());
  }
  void set_memory() {
    for (std::size_t worker = 0; worker < by_worker_.size(); ++worker)
      made_.workers[worker].peak_bytes = by_worker_[worker].most_bytes;
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      const plan::StepBytes& bytes = input_.stages[stage].bytes;
      plan::StageMemory memory{.versions = schedule_.versions_of(stage), .samples = 0};
      memory.weights = memory.versions * bytes.weight;
      memory.optimizer = bytes.weight + bytes.state;
      for (int replica = 0; replica < lowering_.replicas(stage); ++replica) {
        const int replica_id = lowering_.replica_id(stage, replica);
        memory.samples = std::max(memory.samples, int(by_replica_[replica_id].most_samples));
        memory.stash = std::max(memory.stash, by_replica_[replica_id].most_bytes);
        made_.workers[lowering_.worker(replica_id)].peak_bytes += memory.weights + memory.optimizer;
      }
      made_.memory.push_back(memory);
    }
  }
  double input_bytes(int stage) const {
    return stage > 0 ? input_.stages[stage - 1].bytes.activation : input_.input_bytes;
  }

  const Schedule& schedule_;
  const SimulationInput& input_;
  const bool beside_;  ///< messages take none of the workers' time
  const Lowering lowering_;
  Mailbox<double> mail_;
  const std::int64_t applied_;
  std::int64_t order_ = 0;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns_;
  std::vector<double> core_free_ms_;
  std::map<std::pair<int, int>, double> link_free_ms_;  ///< [sending, receiving worker]
  std::vector<Walker> walkers_;
  std::vector<Meeting> meetings_;  ///< [stage]
  std::vector<Held> by_replica_, by_worker_;
  std::int64_t next_frame_ = 0;
  double last_admission_ = 0;
  std::vector<double> came_, predicted_;  ///< [sample]: when its frame came, and its prediction
  Simulation made_;
};

}  // namespace

std::vector<plan::StageCosts> GivenCosts::of(int stages, const std::string& prefix) const {
  const auto at = [&](const char* name, const std::vector<double>& values, int stage) {
    require(values.size() == 1 || int(values.size()) == stages,
            prefix + name + " has " + std::to_string(values.size()) +
                " values: it takes one, or one for each of the " + std::to_string(stages) +
                " stages");
    return values.size() == 1 ? values[0] : values[stage];
  };
  std::vector<plan::StageCosts> costs;
  for (int i = 0; i < stages; ++i) {
    const double back = at("backward", backward, i) / 2;
    costs.push_back({{at("forward", forward, i), back, back, at("update", update, i)}, bytes});
  }
  return costs;
}

Simulation simulate(const Schedule& schedule, const SimulationInput& input) {
  check_input(schedule, input);
  return Run(schedule, input).run();
}

double Simulation::utilisation() const {
  double sum = 0;
  for (std::size_t worker = 0; worker < workers.size(); ++worker) sum += compute_share(int(worker));
  return sum / double(workers.size());
}

double Simulation::bubble() const {
  double sum = 0;
  for (std::size_t worker = 0; worker < workers.size(); ++worker)
    sum += 1 - compute_share(int(worker)) - handoff_share(int(worker));
  return sum / double(workers.size());
}

std::int64_t enough_samples(const Schedule& schedule) {
  // A stage almost as slow as the slowest takes long to work off the queue left by filling.
  const std::int64_t fill = last_sample(schedule, &Program::prologue) + 1 + schedule.in_flight;
  const std::int64_t together = schedule.samples_a_choice();
  return (std::max<std::int64_t>(4 * fill, 2000) + 7 * together) / together * together;
}

double predict(const Schedule& schedule, const std::vector<plan::StageCosts>& stages,
               const plan::Link& link, int cores) {
  SimulationInput input{.samples = enough_samples(schedule), .stages = stages, .cores = cores};
  input.machine.levels.front().link = link;
  input.machine.overlap = plan::Overlap::transfers;
  return simulate(schedule, input).period_ms;
}

std::vector<Span> spans_of(const Simulation& simulation) {
  std::vector<Span> spans;
  const auto ns = [](double ms) { return std::int64_t(std::llround(ms * 1e6)); };
  for (const SimulatedAction& event : simulation.events) {
    spans.push_back({event.worker, event.action, ns(event.compute_start_ms()),
                     ns(event.compute_start_ms() + event.compute_ms)});
  }
  return spans;
}

}  // namespace millrace::engine
