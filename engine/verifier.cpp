#include "engine/verifier.h"

#include <algorithm>  // max
#include <deque>      // links
#include <map>        // slots
#include <set>        // samples seen

#include "engine/staircase.h"

namespace millrace::engine {
namespace {

/// How many of each worker's actions are known to be over: what "happens before" means here.
using Knowledge = std::vector<std::int64_t>;

void learn(Knowledge& mine, const Knowledge& theirs) {
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = std::max(mine[i], theirs[i]);
}

struct Message {
  std::int64_t sample;
  Knowledge knowledge;
};

/// Thrown from within the walk; verify() adds where.
struct Wrong {
  std::string what;
};

/// A buffer slot that one stage writes and others read.
struct Slot {
  std::int64_t sample = -1;
  std::vector<std::pair<int, std::int64_t>>
      reads;  ///< worker, its action's number, since the last write
};

/// What a stage has done so far.
struct StageState {
  std::int64_t next_forward = 0;
  std::int64_t next_backward = 0;
  std::int64_t gradients = 0;  ///< since the last update
  std::int64_t updates = 0;
  std::map<std::int64_t, std::int64_t> version_of;  ///< samples between forward and backward
};

class Walk {
 public:
  explicit Walk(const Schedule& schedule)
      : schedule_(schedule),
        first_backward_(first_backwards(schedule)),
        samples_(enough_samples()),
        at_(schedule.workers.size(), 0),
        knowledge_(schedule.workers.size(), Knowledge(schedule.workers.size(), 0)),
        stages_(schedule.stages),
        activations_(schedule.stages),
        gradients_(schedule.stages) {
    for (int stage = 0; stage < schedule.stages; ++stage)
      stages_[stage].next_backward = first_backward_[stage];
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
          ++knowledge_[worker_][worker_];
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
    return schedule_.applied(last + stride * (2 + 2 * versions) + 2 * schedule_.slots() + stride);
  }

  const Program& program() const { return schedule_.workers[worker_]; }
  bool done() const { return program().over(at_[worker_], samples_); }
  bool last_stage() const { return action_.stage + 1 == schedule_.stages; }
  StageState& stage() { return stages_[action_.stage]; }

  std::optional<Fault> fault(std::string what) const {
    return Fault{clock_, worker_, action_, std::move(what)};
  }

  std::optional<Fault> unfinished() {
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      const StageState& state = stages_[stage];
      action_ = {Op::update, stage, samples_ - 1, samples_ - 1};
      if (state.next_forward != samples_) return fault("a sample is never forwarded");
      if (state.next_backward != samples_) return fault("a sample never goes backward");
      if (state.gradients != 0) return fault("gradients are left without an update");
    }
    return std::nullopt;
  }

  /// False if what the action needs has not come yet.
  bool step() {
    if (action_.stage < 0 || action_.stage >= schedule_.stages || action_.sample < 0)
      throw Wrong{"no such stage or sample"};
    if (owner_.emplace(action_.stage, worker_).first->second != worker_)
      throw Wrong{"the stage belongs to another worker"};
    switch (action_.op) {
      case Op::forward:
        return forward();
      case Op::backward:
        return backward();
      case Op::update:
        update();
        return true;
    }
    return false;
  }

  bool forward() {
    if (action_.sample != stage().next_forward)
      throw Wrong{"forwards must take the samples in order, each once"};
    if (!(action_.stage == 0 ? admit() : receive(activations_[action_.stage - 1], action_.sample)))
      return false;
    ++stage().next_forward;
    check_version();
    if (action_.stage > 0) read(activation_slots_, action_.stage - 1, action_.sample);
    read(input_slots_, 0, action_.sample);  // the first stage's input, the last one's target
    write(activation_slots_, action_.stage, action_.sample);
    if (action_.sample < first_backward_[action_.stage]) {
      release();
    } else {
      stage().version_of[action_.sample] = action_.version >= 0 ? action_.version : stage().updates;
    }
    if (!last_stage()) activations_[action_.stage].push_back({action_.sample, now()});
    return true;
  }

  bool backward() {
    StageState& state = stage();
    if (last_stage() && action_.gradient != action_.sample)
      throw Wrong{"the last stage's gradient is its own sample's"};
    if (action_.sample != state.next_backward)
      throw Wrong{"backwards must take the samples in order, each once"};
    const auto kept = state.version_of.find(action_.sample);
    if (kept == state.version_of.end()) throw Wrong{"the sample has not been forwarded"};
    if (!last_stage() && !receive(gradients_[action_.stage], action_.gradient)) return false;
    const int versions = schedule_.versions_of(action_.stage);
    if (versions > 1 && kept->second + versions <= state.updates)
      throw Wrong{"its weight version is no longer kept"};
    read(activation_slots_, action_.stage, action_.sample);
    if (action_.stage > 0) read(activation_slots_, action_.stage - 1, action_.sample);
    if (action_.stage == 0) read(input_slots_, 0, action_.sample);
    if (!last_stage()) read(gradient_slots_, action_.stage + 1, action_.gradient);
    if (action_.stage > 0) write(gradient_slots_, action_.stage, action_.sample);
    state.version_of.erase(kept);
    ++state.next_backward;
    if (++state.gradients > schedule_.group) throw Wrong{"an update is missing"};
    release();
    if (action_.stage > 0) gradients_[action_.stage - 1].push_back({action_.sample, now()});
    return true;
  }

  void update() {
    StageState& state = stage();
    if (state.gradients != schedule_.group) throw Wrong{"an update without its gradients"};
    if (action_.sample + 1 != state.next_backward)
      throw Wrong{"an update covers other samples than it says"};
    state.gradients = 0;
    ++state.updates;
  }

  /// The rule's version, made already and still kept.
  void check_version() {
    const std::int64_t expected =
        schedule_.version_rule ? schedule_.version_rule(action_.stage, action_.sample) : -1;
    if (action_.version != expected)
      throw Wrong{"runs at another weight version than the rule says"};
    if (action_.version < 0) return;
    if (action_.version > stage().updates) throw Wrong{"its weight version is not made yet"};
    if (action_.version + schedule_.versions_of(action_.stage) <= stage().updates) {
      throw Wrong{"its weight version is no longer kept"};
    }
  }

  bool receive(std::deque<Message>& link, std::int64_t sample) {
    if (link.empty()) return false;
    if (link.front().sample != sample) {
      throw Wrong{"receives what belongs to sample " + std::to_string(link.front().sample)};
    }
    learn(knowledge_[worker_], link.front().knowledge);
    link.pop_front();
    return true;
  }

  /// The slot's last sample has left every stage; then the feed writes the new one.
  bool admit() {
    const std::int64_t before = action_.sample - schedule_.in_flight;
    if (before >= 0) {
      const auto& left = released_[before];
      if (int(left.size()) < schedule_.stages) return false;
      for (const Knowledge& knowledge : left) learn(knowledge_[worker_], knowledge);
    }
    write(input_slots_, 0, action_.sample);
    return true;
  }

  void release() { released_[action_.sample].push_back(now()); }

  /// What whoever hears of this action knows: that it is over.
  Knowledge now() const {
    Knowledge known = knowledge_[worker_];
    ++known[worker_];
    return known;
  }

  using Slots = std::map<std::pair<int, std::int64_t>, Slot>;  ///< by stage and slot

  Slot& slot(Slots& slots, int stage, std::int64_t sample) {
    return slots[{stage, sample % schedule_.slots()}];
  }

  void read(Slots& slots, int stage, std::int64_t sample) {
    Slot& from = slot(slots, stage, sample);
    if (from.sample != sample)
      throw Wrong{"its slot was overwritten by sample " + std::to_string(from.sample)};
    from.reads.emplace_back(worker_, at_[worker_]);
  }

  void write(Slots& slots, int stage, std::int64_t sample) {
    Slot& into = slot(slots, stage, sample);
    for (const auto& [reader, number] : into.reads) {
      if (reader != worker_ && knowledge_[worker_][reader] <= number) {
        throw Wrong{"may overwrite sample " + std::to_string(into.sample) + " while worker " +
                    std::to_string(reader) + " still reads it"};
      }
    }
    into.sample = sample;
    into.reads.clear();
  }

  const Schedule& schedule_;
  std::vector<std::int64_t> first_backward_;
  std::int64_t samples_;
  std::int64_t clock_ = 0;
  int worker_ = 0;
  Action action_;
  std::vector<std::int64_t> at_;      ///< by worker: actions walked
  std::vector<Knowledge> knowledge_;  ///< by worker
  std::vector<StageState> stages_;
  std::map<int, int> owner_;                                  ///< worker of a stage
  std::vector<std::deque<Message>> activations_, gradients_;  ///< [i]: between stage i and i+1
  std::map<std::int64_t, std::vector<Knowledge>> released_;   ///< by sample: one a stage
  Slots input_slots_, activation_slots_, gradient_slots_;
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
