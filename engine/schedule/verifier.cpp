#include "engine/schedule/verifier.h"

#include <algorithm>  // max
#include <map>        // samples kept
#include <numeric>    // lcm

#include "engine/schedule/staircase.h"
#include "engine/schedule/verifier_traffic.h"

namespace millrace::engine {
namespace {

/// A sample between its forward and the end of its backward.
struct Kept {
  std::int64_t version = 0;
  bool activations = true;  ///< false where they must be recomputed first
  bool input_done = false;  ///< backward_input is over, backward_weight is not
};

/// What a unit (a replica of a stage) has done so far.
struct Unit {
  std::int64_t next_forward = 0;
  std::int64_t backwards = 0;           ///< samples all done
  std::vector<std::int64_t> gradients;  ///< samples since the last update, in order
  std::int64_t updates = 0;
  bool posted = false;  ///< waits in its update for the other replicas
  std::map<std::int64_t, Kept> kept;
};

class Walk {
 public:
  explicit Walk(const Schedule& schedule)
      : schedule_(schedule),
        first_backward_(first_backwards(schedule)),
        samples_(enough_samples()),
        at_(schedule.workers.size(), 0),
        traffic_(schedule),
        units_(schedule.units()),
        owner_(schedule.units(), -1),
        recomputes_(schedule.stages) {
    for (int stage = 0; stage < schedule.stages; ++stage) {
      recomputes_[stage] = needs_of(schedule, stage).recompute;
      for (int replica = 0; replica < schedule.replicas_of(stage); ++replica)
        units_[schedule.unit(stage, replica)].next_forward = replica;
    }
  }

  std::optional<Fault> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (worker_ = 0; worker_ < int(at_.size()); ++worker_) {
        while (!done()) {
          action_ = program().at(at_[worker_]);
          try {
            if (action_.sample < samples_ && !step()) break;
          } catch (const Wrong& wrong) {
            return fault(wrong.what);
          }
          traffic_.pass(worker_);
          ++at_[worker_];
          ++clock_;
          moved = true;
        }
      }
    }
    for (worker_ = 0; worker_ < int(at_.size()); ++worker_) {
      if (done()) continue;
      action_ = program().at(at_[worker_]);
      return fault("deadlock: what it waits for never comes");
    }
    return unfinished();
  }

 private:
  /// Slots and versions have all come round, in the steady state, several times.
  std::int64_t enough_samples() const {
    std::int64_t last = 0, stride = 1, versions = 1;
    for (const Program& program : schedule_.workers) {
      for (const auto* list : {&program.prologue, &program.period}) {
        for (const Action& action : *list) last = std::max(last, action.sample);
      }
      stride = std::max(stride, program.stride);
    }
    for (int stage = 0; stage < schedule_.stages; ++stage)
      versions = std::max<std::int64_t>(versions, schedule_.versions_of(stage));
    std::int64_t together = 1;  // whole updates everywhere
    for (int stage = 0; stage < schedule_.stages; ++stage)
      together = std::lcm(together, schedule_.samples_an_update(stage));
    const std::int64_t least = last + stride * (3 + 2 * versions) + 2 * schedule_.slots();
    return (least + together - 1) / together * together;
  }

  const Program& program() const { return schedule_.workers[worker_]; }
  bool done() const { return program().over(at_[worker_], samples_); }
  bool last_stage() const { return action_.stage + 1 == schedule_.stages; }
  int replicas() const { return schedule_.replicas_of(action_.stage); }
  int unit_index() const { return schedule_.unit(action_.stage, program().replica); }
  Unit& unit() { return units_[unit_index()]; }

  std::optional<Fault> fault(std::string what) const {
    return Fault{clock_, worker_, action_, std::move(what)};
  }

  std::optional<Fault> unfinished() {
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      const int replicas = schedule_.replicas_of(stage);
      for (int replica = 0; replica < replicas; ++replica) {
        const Unit& unit = units_[schedule_.unit(stage, replica)];
        action_ = {Op::update, stage, samples_ - 1, samples_ - 1};
        if (unit.next_forward < samples_) return fault("a sample is never forwarded");
        if (unit.backwards * replicas != samples_ - first_backward_[stage])
          return fault("a sample never goes backward");
        if (!unit.gradients.empty()) return fault("gradients are left without an update");
      }
    }
    return std::nullopt;
  }

  /// False if what the action needs has not come yet.
  bool step() {
    if (action_.stage < 0 || action_.stage >= schedule_.stages || action_.sample < 0)
      throw Wrong{"no such stage or sample"};
    if (program().replica >= replicas()) throw Wrong{"the stage has no such replica"};
    int& owner = owner_[unit_index()];
    if (owner < 0) owner = worker_;
    if (owner != worker_) throw Wrong{"the stage belongs to another worker"};
    if (action_.op == Op::update) return update();
    if (schedule_.replica_of(action_.stage, action_.sample) != program().replica)
      throw Wrong{"the sample belongs to another replica"};
    switch (action_.op) {
      case Op::forward:
        return forward();
      case Op::recompute:
        recompute();
        return true;
      case Op::backward:
        if (!backward_input()) return false;
        backward_weight();
        return true;
      case Op::backward_input:
        return backward_input();
      default:
        backward_weight();
        return true;
    }
  }

  bool forward() {
    Unit& mine = unit();
    if (action_.sample != mine.next_forward)
      throw Wrong{"forwards must take the samples in order, each once"};
    // Samples are admitted and predicted in order, also by several replicas.
    const int stage = action_.stage;
    const std::int64_t sample = action_.sample;
    const bool ordered = replicas() > 1 && (stage == 0 || last_stage());
    if (ordered && !traffic_.has_turn(stage, sample)) return false;
    if (!(stage == 0 ? traffic_.admit(worker_, sample)
                     : traffic_.receive_from_above(worker_, stage, sample)))
      return false;
    if (ordered) traffic_.take_turn(worker_, stage);
    mine.next_forward += replicas();
    check_version();
    if (stage > 0) traffic_.read_activation(worker_, stage - 1, sample);
    traffic_.read_sample(worker_, sample);
    traffic_.write_activation(worker_, stage, sample);
    if (sample < first_backward_[stage]) {
      traffic_.release(worker_, sample);
    } else {
      mine.kept[sample] = {action_.version >= 0 ? action_.version : mine.updates,
                           !recomputes_[stage]};
    }
    if (!last_stage()) traffic_.send_down(worker_, stage, sample);
    return true;
  }

  Kept& kept() {
    const auto found = unit().kept.find(action_.sample);
    if (found == unit().kept.end()) throw Wrong{"the sample has not been forwarded"};
    return found->second;
  }

  void recompute() {
    Kept& sample = kept();
    if (sample.activations) throw Wrong{"its activations are there already"};
    const bool in_place = schedule_.versions_of(action_.stage) == 1;
    if (in_place && sample.version != unit().updates)
      throw Wrong{"recomputes at other weights than its forward's"};
    require_kept(sample.version);
    read_inputs();
    sample.activations = true;
  }

  bool backward_input() {
    if (last_stage() && action_.gradient != action_.sample)
      throw Wrong{"the last stage's gradient is its own sample's"};
    Kept& sample = kept();
    if (sample.input_done) throw Wrong{"goes backward twice"};
    if (!sample.activations) throw Wrong{"its activations have not been recomputed"};
    const int stage = action_.stage;
    if (!last_stage() && !traffic_.receive_from_below(worker_, stage, action_.gradient))
      return false;
    if (schedule_.versions_of(stage) > 1) require_kept(sample.version);
    read_inputs();
    traffic_.read_activation(worker_, stage, action_.sample);
    if (!last_stage()) traffic_.read_gradient(worker_, stage + 1, action_.gradient);
    if (stage > 0) {
      traffic_.write_gradient(worker_, stage, action_.sample);
      traffic_.send_up(worker_, stage, action_.sample);
    }
    sample.input_done = true;
    return true;
  }

  void backward_weight() {
    Unit& mine = unit();
    if (!kept().input_done) throw Wrong{"the weights' gradient before the input's"};
    if (schedule_.versions_of(action_.stage) > 1) require_kept(kept().version);
    read_inputs();
    std::vector<std::int64_t>& sum = mine.gradients;
    if (int(sum.size()) == schedule_.group) throw Wrong{"an update is missing"};
    // Sums are taken up or down through the samples, so that their rounding is the schedule's.
    if (sum.size() > 1 && (sum[0] < sum[1]) != (sum.back() < action_.sample))
      throw Wrong{"backwards of a minibatch must go up or down through its samples"};
    if (sum.empty()) traffic_.write_sum(worker_, unit_index(), mine.updates);
    sum.push_back(action_.sample);
    mine.kept.erase(action_.sample);
    ++mine.backwards;
    traffic_.release(worker_, action_.sample);
  }

  bool update() {
    Unit& mine = unit();
    if (!mine.posted) {
      require_gradients();
      traffic_.post(worker_, action_.stage, mine.updates);
      mine.posted = true;
    }
    if (!traffic_.meet(worker_, action_.stage, mine.updates)) return false;
    mine.posted = false;
    mine.gradients.clear();
    ++mine.updates;
    return true;
  }

  void read_inputs() { traffic_.read_inputs(worker_, action_.stage, action_.sample); }

  /// An update covers the samples that come next, of this replica.
  void require_gradients() {
    const int covers = schedule_.samples_an_update(action_.stage);
    const std::int64_t begin = first_backward_[action_.stage] + unit().updates * covers;
    std::vector<std::int64_t>& sum = unit().gradients;
    if (int(sum.size()) != schedule_.group) throw Wrong{"an update without its gradients"};
    const auto [least, most] = std::minmax_element(sum.begin(), sum.end());
    if (*least < begin || *most >= begin + covers || action_.sample != begin + covers - 1)
      throw Wrong{"an update covers other samples than it says"};
  }

  void require_kept(std::int64_t version) {
    if (version + schedule_.versions_of(action_.stage) <= unit().updates)
      throw Wrong{"its weight version is no longer kept"};
  }

  /// The rule's version, made already and still kept.
  void check_version() {
    const std::int64_t expected =
        schedule_.version_rule ? schedule_.version_rule(action_.stage, action_.sample) : -1;
    if (action_.version != expected)
      throw Wrong{"runs at another weight version than the rule says"};
    if (action_.version < 0) return;
    if (action_.version > unit().updates) throw Wrong{"its weight version is not made yet"};
    require_kept(action_.version);
  }

  const Schedule& schedule_;
  std::vector<std::int64_t> first_backward_;
  std::int64_t samples_;
  std::int64_t clock_ = 0;
  int worker_ = 0;
  Action action_;
  std::vector<std::int64_t> at_;  ///< by worker: actions walked
  Traffic traffic_;
  std::vector<Unit> units_;
  std::vector<int> owner_;  ///< by unit: its worker
  std::vector<bool> recomputes_;
};

}  // namespace

std::string Fault::text(const std::string& schedule) const {
  return "schedule " + schedule + ", clock " + std::to_string(clock) + ", worker " +
         std::to_string(worker) + ", " + action_text(action, true) + ": " + what;
}

std::optional<Fault> verify(const Schedule& schedule) {
  return Walk(schedule).run();
}

}  // namespace millrace::engine
