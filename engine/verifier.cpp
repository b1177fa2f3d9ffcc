#include "engine/verifier.h"

#include <algorithm>  // max, find
#include <deque>      // links
#include <map>        // links by their ends
#include <numeric>    // lcm
#include <set>        // samples seen

#include "engine/happens_before.h"
#include "engine/staircase.h"

namespace millrace::engine {
namespace {

struct Message {
  std::int64_t sample;
  Knowledge knowledge;
};

/// Thrown from within the walk; verify() adds where.
struct Wrong {
  std::string what;
};

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
        order_(schedule.workers.size()),
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
          order_.pass(worker_);
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
  int unit_of(int stage, std::int64_t sample) const {
    return schedule_.unit(stage, schedule_.replica_of(stage, sample));
  }
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
    const bool ordered = replicas() > 1 && (action_.stage == 0 || last_stage());
    if (ordered && action_.sample != int(in_order_[action_.stage].size())) return false;
    if (!(action_.stage == 0 ? admit() : receive(activations_, action_.stage - 1, action_.sample)))
      return false;
    if (ordered) {
      std::vector<Knowledge>& turns = in_order_[action_.stage];
      if (!turns.empty()) order_.learn(worker_, turns.back());
      turns.push_back(order_.now(worker_));
    }
    mine.next_forward += replicas();
    check_version();
    if (action_.stage > 0) read(activation_slots_, action_.stage - 1, action_.sample);
    read(input_slots_, 0, action_.sample);  // the first stage's input, the last one's target
    write(activation_slots_, action_.stage, action_.sample);
    if (action_.sample < first_backward_[action_.stage]) {
      release();
    } else {
      mine.kept[action_.sample] = {action_.version >= 0 ? action_.version : mine.updates,
                                   !recomputes_[action_.stage]};
    }
    if (!last_stage()) send(activations_, action_.stage, action_.sample);
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
    if (!last_stage() && !receive(gradients_, action_.stage, action_.gradient)) return false;
    if (schedule_.versions_of(action_.stage) > 1) require_kept(sample.version);
    read_inputs();
    read(activation_slots_, action_.stage, action_.sample);
    if (!last_stage()) read(gradient_slots_, action_.stage + 1, action_.gradient);
    if (action_.stage > 0) {
      write(gradient_slots_, action_.stage, action_.sample);
      send(gradients_, action_.stage - 1, action_.sample);
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
    if (sum.empty()) write_sum();
    sum.push_back(action_.sample);
    mine.kept.erase(action_.sample);
    ++mine.backwards;
    release();
  }

  bool update() {
    Unit& mine = unit();
    if (!mine.posted) {
      require_gradients();
      posts_[{action_.stage, mine.updates}].push_back(order_.now(worker_));
      mine.posted = true;
    }
    const std::vector<Knowledge>& posts = posts_[{action_.stage, mine.updates}];
    if (int(posts.size()) < replicas()) return false;
    for (const Knowledge& knowledge : posts) order_.learn(worker_, knowledge);
    for (int replica = 0; replica < replicas(); ++replica) {
      const int other = schedule_.unit(action_.stage, replica);
      if (sums_.read(worker_, other, mine.updates % 2, mine.updates))
        throw Wrong{"another replica's gradient was overwritten"};
    }
    mine.posted = false;
    mine.gradients.clear();
    ++mine.updates;
    return true;
  }

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

  /// Messages by the units that send and take them.
  using Links = std::map<std::pair<int, int>, std::deque<Message>>;

  /// The link between `upper` and the stage after it that `sample` goes over.
  std::deque<Message>& link(Links& links, int upper, std::int64_t sample) {
    return links[{unit_of(upper, sample), unit_of(upper + 1, sample)}];
  }

  void send(Links& links, int upper, std::int64_t sample) {
    link(links, upper, sample).push_back({sample, order_.now(worker_)});
  }

  bool receive(Links& links, int upper, std::int64_t sample) {
    std::deque<Message>& from = link(links, upper, sample);
    if (from.empty()) return false;
    if (from.front().sample != sample)
      throw Wrong{"receives what belongs to sample " + std::to_string(from.front().sample)};
    order_.learn(worker_, from.front().knowledge);
    from.pop_front();
    return true;
  }

  /// The slot's last sample has left every stage; then the feed writes the new one.
  bool admit() {
    const std::int64_t before = action_.sample - schedule_.in_flight;
    if (before >= 0) {
      const auto& left = released_[before];
      if (int(left.size()) < schedule_.stages) return false;
      for (const Knowledge& knowledge : left) order_.learn(worker_, knowledge);
    }
    write(input_slots_, 0, action_.sample);
    return true;
  }

  void release() { released_[action_.sample].push_back(order_.now(worker_)); }

  void read(Slots& slots, int owner, std::int64_t sample) {
    if (const auto other = slots.read(worker_, owner, sample % schedule_.slots(), sample))
      throw Wrong{"its slot was overwritten by sample " + std::to_string(*other)};
  }
  /// What the stage was given of the sample is read again by all that goes backward.
  void read_inputs() {
    if (action_.stage > 0) read(activation_slots_, action_.stage - 1, action_.sample);
    if (action_.stage == 0 || last_stage()) read(input_slots_, 0, action_.sample);
  }

  void write(Slots& slots, int owner, std::int64_t sample) {
    if (const auto reader = slots.write(worker_, owner, sample % schedule_.slots(), sample)) {
      throw Wrong{"may overwrite what worker " + std::to_string(*reader) + " still reads"};
    }
  }
  void write_sum() {
    if (sums_.write(worker_, unit_index(), unit().updates % 2, unit().updates))
      throw Wrong{"may overwrite a gradient that another replica still reads"};
  }

  const Schedule& schedule_;
  std::vector<std::int64_t> first_backward_;
  std::int64_t samples_;
  std::int64_t clock_ = 0;
  int worker_ = 0;
  Action action_;
  std::vector<std::int64_t> at_;  ///< by worker: actions walked
  HappensBefore order_;
  std::vector<Unit> units_;
  std::vector<int> owner_;  ///< by unit: its worker
  std::vector<bool> recomputes_;
  Links activations_, gradients_;
  std::map<int, std::vector<Knowledge>> in_order_;           ///< by stage: forwards of samples
  std::map<std::int64_t, std::vector<Knowledge>> released_;  ///< by sample: one a stage
  std::map<std::pair<int, std::int64_t>, std::vector<Knowledge>> posts_;  ///< stage, update
  Slots input_slots_{order_}, activation_slots_{order_}, gradient_slots_{order_}, sums_{order_};
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
