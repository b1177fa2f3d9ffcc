#include "engine/schedule/verifier.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <ranges>
#include <stdexcept>

#include "engine/schedule/mailbox.h"

namespace millrace::engine {
namespace {

/// [worker]: how many of its actions are known to be done. Each worker has one, a vector clock:
/// what it knows of the others from signals alone, and of itself.
using Knowledge = std::vector<std::int64_t>;

void learn(Knowledge& mine, const Knowledge& theirs) {
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = std::max(mine[i], theirs[i]);
}

/// Buffers that some actions write and others read, one item at a time. Every call is for
/// `worker`'s current action. Throws Wrong if some timing could read too late or write too early.
class Buffers {
 public:
  enum class Kind { sample, inner, stored, activation, gradient, sum };

  /// `known`: by worker. `notes_meetings`: needed by sets(); looks at every slot on each read and
  /// write.
  Buffers(const std::vector<Knowledge>& known, int slots, bool notes_meetings)
      : known_(known), slots_(slots), notes_meetings_(notes_meetings) {}

  void read(int worker, Kind kind, int owner, std::int64_t item) {
    Slots& slots = slots_of(kind, owner);
    Buffer& from = slots.at(item);
    if (from.item != item) {
      throw Wrong{kind == Kind::sum
                      ? "another replica's gradient was overwritten"
                      : "its slot was overwritten by sample " + std::to_string(from.item)};
    }
    from.reads.emplace_back(worker, known_[worker][worker]);
    slots.meet(item, [&](const Buffer& other) { return other.written > from.written; });
  }

  void write(int worker, Kind kind, int owner, std::int64_t item) {
    Slots& slots = slots_of(kind, owner);
    if (const auto reader = unfinished(worker, slots.at(item))) {
      throw Wrong{kind == Kind::sum
                      ? "may overwrite a gradient that another replica still reads"
                      : "may overwrite what worker " + std::to_string(*reader) + " still reads"};
    }
    slots.at(item) = {item, ++writes_, {}};
    slots.meet(item, [&](const Buffer& other) { return unfinished(worker, other).has_value(); });
  }

  /// The smallest s such that no two slots equal mod s both hold an item that may still be read.
  /// \param group the stream may end after any number of so many samples: slots that meet at the
  /// end of this one stand for all as far apart.
  int sets(Kind kind, int owner, int group) const {
    const auto found = slots_of_.find({kind, owner});
    if (found == slots_of_.end()) return 1;
    const std::vector<bool>& meetings = found->second.meetings;
    const int step = std::gcd(group, slots_);
    int sets = 1;
    const auto clash = [&](std::int64_t pair) {
      const std::int64_t one = pair / slots_, other = pair % slots_;
      for (std::int64_t later = 0; meetings[std::size_t(pair)] && later < slots_; later += step) {
        if ((one + later) % slots_ % sets == (other + later) % slots_ % sets) return true;
      }
      return false;
    };
    const auto pairs = std::views::iota(std::int64_t{0}, std::int64_t(meetings.size()));
    while (std::ranges::any_of(pairs, clash)) ++sets;
    return sets;
  }

 private:
  struct Buffer {
    std::int64_t item = -1;
    std::int64_t written = 0;                         ///< serial number of the write
    std::vector<std::pair<int, std::int64_t>> reads;  ///< since the last write: worker, its action
  };
  struct Slots {
    std::vector<Buffer> buffers;
    std::vector<bool> meetings;  ///< [slot][slot]: must not share a set; empty: not noted

    Buffer& at(std::int64_t item) { return buffers[std::size_t(item) % buffers.size()]; }
    /// Records the slots that must not share a set with the slot of `item`.
    template <class Needed>
    void meet(std::int64_t item, const Needed& needed) {
      const std::size_t mine = std::size_t(item) % buffers.size();
      for (std::size_t slot = 0; !meetings.empty() && slot < buffers.size(); ++slot)
        if (slot != mine && needed(buffers[slot])) meetings[mine * buffers.size() + slot] = true;
    }
  };

  /// Samples share slots. Sums of consecutive updates alternate between two buffers.
  Slots& slots_of(Kind kind, int owner) {
    const bool sums = kind == Kind::sum;
    const auto [at, fresh] = slots_of_.try_emplace({kind, owner});
    if (fresh) {
      at->second.buffers.resize(sums ? 2 : std::size_t(slots_));
      at->second.meetings.resize(notes_meetings_ && !sums ? std::size_t(slots_) * slots_ : 0);
    }
    return at->second;
  }
  /// A reader of `buffer` that may, as far as `worker` knows, not have finished.
  std::optional<int> unfinished(int worker, const Buffer& buffer) const {
    for (const auto& [reader, action] : buffer.reads) {
      if (reader != worker && known_[worker][reader] <= action) return reader;
    }
    return std::nullopt;
  }

  const std::vector<Knowledge>& known_;
  const int slots_;
  const bool notes_meetings_;
  std::int64_t writes_ = 0;
  std::map<std::pair<Kind, int>, Slots> slots_of_;  ///< [kind, owner]
};

struct Kept {
  std::int64_t version = 0;
  bool activations = true;  ///< false: recompute comes first
  bool input_done = false;  ///< backward_input is done, backward_weight is not
  bool local_done = false;
  std::int64_t gradient = -1;  ///< the sample whose downstream gradient it used
};

struct Replica {
  int owner = -1;  ///< the worker that runs it
  std::int64_t next_forward = 0;
  std::int64_t backwards = 0;
  std::vector<std::int64_t> gradients;  ///< samples since the last update, in order
  std::int64_t updates = 0;
  bool has_local = false;  ///< a local gradient was added since the last update
  std::map<std::int64_t, Kept> kept;
};

/// Enough samples to reuse every slot and version several times in the steady state.
std::int64_t samples_to_walk(const Schedule& schedule) {
  const std::int64_t last = std::max<std::int64_t>(
      {0, last_sample(schedule, &Program::prologue), last_sample(schedule, &Program::period)});
  std::int64_t stride = 1;
  for (const Program& program : schedule.workers) stride = std::max(stride, program.stride);
  const std::int64_t together = schedule.samples_a_choice();
  const std::int64_t least =
      last + stride * (3 + 2 * schedule.most_versions()) + 2 * schedule.slots();
  return (least + together - 1) / together * together;
}

class Proof {
 public:
  Proof(const Schedule& schedule, std::size_t capacity, bool finds_sets)
      : schedule_(schedule),
        capacity_(capacity),
        samples_(samples_to_walk(schedule)),
        known_(schedule.workers.size(), Knowledge(schedule.workers.size(), 0)),
        buffers_(known_, schedule.slots(), finds_sets),
        replicas_(schedule.replica_ids()) {
    for (const Program& program : schedule.workers) ends_.push_back(program.end(samples_));
    for (int stage = 0; stage < schedule.stages; ++stage) {
      for (int replica = 0; replica < schedule.replicas_of(stage); ++replica)
        replicas_[schedule.replica_id(stage, replica)].next_forward = replica;
    }
  }

  std::optional<Fault> run() {
    try {
      if (walk_programs(schedule_, samples_, at_, [&](int worker, std::int64_t index) {
            worker_ = worker;
            action_ = schedule_.workers[worker].at(index);
            if (action_.sample < samples_ && !step()) return false;
            ++known_[worker][worker];
            ++clock_;
            return true;
          })) {
        return unfinished();
      }
    } catch (const Wrong& wrong) {
      return fault(wrong.what());
    }
    for (worker_ = 0; ended(worker_);) ++worker_;
    action_ = schedule_.workers[worker_].at(at_[worker_]);
    return fault("deadlock: what it waits for never comes");
  }

  int sets(Buffers::Kind kind, int stage) const {
    return buffers_.sets(kind, stage, schedule_.group);
  }

 private:
  using Kind = Buffers::Kind;

  std::optional<Fault> fault(std::string what) const {
    return Fault{clock_, worker_, action_, std::move(what)};
  }

  std::optional<Fault> unfinished() {
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      const int replicas = schedule_.replicas_of(stage);
      for (int replica = 0; replica < replicas; ++replica) {
        const Replica& mine = replicas_[schedule_.replica_id(stage, replica)];
        action_ = {Op::update, stage, samples_ - 1, samples_ - 1};
        if (mine.next_forward < samples_) return fault("a sample is never forwarded");
        if (mine.backwards * replicas != samples_ - lowering_.first_backward(stage))
          return fault("a sample never goes backward");
        if (!mine.gradients.empty()) return fault("gradients are left without an update");
      }
    }
    return std::nullopt;
  }

  /// Performs the current action. False if a signal that it needs has not come yet.
  bool step() {
    require_place();
    const Lowered next = lowering_(worker_, action_);
    Replica& mine = replicas_[next.replica_id];
    require_order(mine);
    if (!mail_.have(next.needs, known_afterwards()) ||
        !mail_.has_room(next.gives, [&](int worker) { return ended(worker); }))
      return false;
    for (const Signal& need : next.needs) {
      if (need.crosses_cut())
        links_[{need.kind, need.from, need.to}].takes.push_back(known_[worker_]);
      mail_.take(need, [&](const Knowledge& theirs) { learn(known_[worker_], theirs); });
    }
    act(next, mine);
    for (const Signal& signal : next.gives) {
      mail_.give(signal, known_afterwards());
      if (signal.crosses_cut()) sent(signal);
    }
    return true;
  }

  /// What the worker will know once its current action is done.
  Knowledge known_afterwards() const {
    Knowledge known = known_[worker_];
    ++known[worker_];
    return known;
  }
  bool ended(int worker) const { return at_[worker] >= ends_[worker]; }
  /// Orders this action after the taker's read that freed the link's room.
  void sent(const Signal& signal) {
    Link& link = links_[{signal.kind, signal.from, signal.to}];
    if (++link.sent > link.takes.size() + capacity_)  // the taker has ended
      return learn(known_[worker_], known_[lowering_.worker(signal.to)]);
    if (link.sent > capacity_) learn(known_[worker_], link.takes[link.sent - capacity_ - 1]);
  }

  /// Throws Wrong unless stage and sample are this worker's.
  void require_place() {
    if (action_.stage < 0 || action_.stage >= schedule_.stages || action_.sample < 0)
      throw Wrong{"no such stage or sample"};
    const int replica = schedule_.workers[worker_].replica;
    if (replica >= lowering_.replicas(action_.stage)) throw Wrong{"the stage has no such replica"};
    int& owner = replicas_[lowering_.replica_id(action_.stage, replica)].owner;
    if (owner < 0) owner = worker_;
    if (owner != worker_) throw Wrong{"the stage belongs to another worker"};
    if (action_.op != Op::update && schedule_.replica_of(action_.stage, action_.sample) != replica)
      throw Wrong{"the sample belongs to another replica"};
  }

  /// Throws Wrong unless the replica has done what must precede the action.
  void require_order(Replica& mine) {
    if (action_.op == Op::forward && action_.sample != mine.next_forward)
      throw Wrong{"forwards must take the samples in order, each once"};
    if (action_.op == Op::backward_local) require_local(mine);
    if (action_.op == Op::recompute) require_recomputable(mine);
    if (takes_gradient(action_.op)) {
      if (lowering_.last(action_.stage) && action_.gradient != action_.sample)
        throw Wrong{"the last stage's gradient is its own sample's"};
      const Kept& sample = kept(mine);
      if (sample.input_done) throw Wrong{"goes backward twice"};
      if (!sample.activations) throw Wrong{"its activations have not been recomputed"};
    }
    if (action_.op == Op::backward_weight && !kept(mine).input_done)
      throw Wrong{"the weights' gradient before the input's"};
    if (action_.op == Op::update) require_gradients(mine);
  }

  void act(const Lowered& next, Replica& mine) {
    if (action_.op == Op::forward) forward(next.replica_id, mine);
    if (action_.op == Op::backward_local) {
      read_inputs();
      read(Kind::activation, action_.stage, action_.sample);
      read(Kind::inner, next.replica_id, action_.sample);
      kept(mine).local_done = mine.has_local = true;
      kept(mine).activations = false;  // backward_local frees them
    }
    if (action_.op == Op::recompute) {
      if (stores()) {
        read(Kind::stored, next.replica_id, action_.sample);
      } else {
        read_inputs();
      }
      write(Kind::inner, next.replica_id, action_.sample);
      kept(mine).activations = true;
    }
    if (takes_gradient(action_.op)) backward_input(mine);
    if (adds_gradient(action_.op)) backward_weight(next.replica_id, mine);
    if (action_.op == Op::update) update(next, mine);
  }

  void forward(int number, Replica& mine) {
    const int stage = action_.stage;
    if (stage == 0) write(Kind::sample, 0, action_.sample);  // the feed writes it
    mine.next_forward += lowering_.replicas(stage);
    check_version(mine);
    if (stage > 0) read(Kind::activation, stage - 1, action_.sample);
    read(Kind::sample, 0, action_.sample);
    write(Kind::activation, stage, action_.sample);
    write(Kind::inner, number, action_.sample);  // with recompute, the forward still leaves its
                                                 // output there
    if (stores()) write(Kind::stored, number, action_.sample);
    if (action_.sample >= lowering_.first_backward(stage)) {
      mine.kept[action_.sample] = {action_.version >= 0 ? action_.version : mine.updates,
                                   !lowering_.recomputes(stage)};
    }
  }

  Kept& kept(Replica& mine) {
    const auto found = mine.kept.find(action_.sample);
    if (found == mine.kept.end()) throw Wrong{"the sample has not been forwarded"};
    return found->second;
  }

  /// Throws Wrong unless the forward has just left the activations.
  void require_local(Replica& mine) {
    if (lowering_.last(action_.stage)) throw Wrong{"the last stage's loss is the pipeline's"};
    if (schedule_.group > 1 || schedule_.versions_of(action_.stage) > 1)
      throw Wrong{"a local loss needs an update per sample and one version of the weights"};
    if (kept(mine).local_done ||
        action_.sample + lowering_.replicas(action_.stage) != mine.next_forward)
      throw Wrong{"a local loss is of the sample just forwarded, once"};
    if (mine.has_local) throw Wrong{"two local gradients for one update"};
  }

  void require_recomputable(Replica& mine) {
    const Kept& sample = kept(mine);
    if (sample.activations) throw Wrong{"its activations are there already"};
    if (lowering_.supervised(action_.stage))
      return;  // with deep supervision an old gradient uses
               // the current weights
    const bool in_place = schedule_.versions_of(action_.stage) == 1;
    if (in_place && sample.version != mine.updates)
      throw Wrong{"recomputes at other weights than its forward's"};
    require_kept(sample.version, mine);
  }

  void backward_input(Replica& mine) {
    const int stage = action_.stage;
    if (schedule_.versions_of(stage) > 1) require_kept(kept(mine).version, mine);
    read_inputs();
    read_output();
    read_gradient(action_.gradient);
    if (stage > 0) write(Kind::gradient, stage, action_.sample);
    kept(mine).input_done = true;
    kept(mine).gradient = action_.gradient;
  }

  void backward_weight(int number, Replica& mine) {
    if (schedule_.versions_of(action_.stage) > 1) require_kept(kept(mine).version, mine);
    read_inputs();
    read_output();
    read(Kind::inner, number, action_.sample);
    if (action_.op == Op::backward_weight) read_gradient(kept(mine).gradient);
    std::vector<std::int64_t>& sum = mine.gradients;
    if (int(sum.size()) == schedule_.group) throw Wrong{"an update is missing"};
    // Sums ascend or descend, so the schedule alone decides their rounding.
    if (sum.size() > 1 && (sum[0] < sum[1]) != (sum.back() < action_.sample))
      throw Wrong{"backwards of a minibatch must go up or down through its samples"};
    if (sum.empty()) write(Kind::sum, number, mine.updates);
    sum.push_back(action_.sample);
    mine.kept.erase(action_.sample);
    ++mine.backwards;
  }

  void update(const Lowered& next, Replica& mine) {
    for (int replica = 0; replica < lowering_.replicas(action_.stage); ++replica)
      read(Kind::sum, lowering_.replica_id(action_.stage, replica), mine.updates);
    mine.gradients.clear();
    mine.has_local = false;
    ++mine.updates;
  }

  void read(Kind kind, int owner, std::int64_t item) { buffers_.read(worker_, kind, owner, item); }
  void write(Kind kind, int owner, std::int64_t item) {
    buffers_.write(worker_, kind, owner, item);
  }
  void read_gradient(std::int64_t sample) {
    if (!lowering_.last(action_.stage)) read(Kind::gradient, action_.stage + 1, sample);
  }
  bool stores() const {
    return schedule_.stores_inputs && action_.stage > 0 && lowering_.supervised(action_.stage);
  }
  /// Reads the stage's inputs, which its backward needs again.
  void read_inputs() {
    const int stage = action_.stage;
    if (stores() && action_.op != Op::backward_local) return;  // recomputed beside the activations
    if (stage > 0) read(Kind::activation, stage - 1, action_.sample);
    if (stage == 0 || lowering_.last(stage) || action_.op == Op::backward_local)
      read(Kind::sample, 0, action_.sample);
  }

  /// Reads what the forward left for the next stage, which may be among its activations.
  void read_output() {
    if (!lowering_.recomputes(action_.stage)) read(Kind::activation, action_.stage, action_.sample);
  }

  /// Throws Wrong unless the update covers exactly this replica's next samples.
  void require_gradients(const Replica& mine) {
    const int covers = schedule_.samples_an_update(action_.stage);
    const std::int64_t begin = lowering_.first_backward(action_.stage) + mine.updates * covers;
    const std::vector<std::int64_t>& sum = mine.gradients;
    if (int(sum.size()) != schedule_.group) throw Wrong{"an update without its gradients"};
    const auto [least, most] = std::minmax_element(sum.begin(), sum.end());
    if (*least < begin || *most >= begin + covers || action_.sample != begin + covers - 1)
      throw Wrong{"an update covers other samples than it says"};
  }

  void require_kept(std::int64_t version, const Replica& mine) {
    if (version + schedule_.versions_of(action_.stage) <= mine.updates)
      throw Wrong{"its weight version is no longer kept"};
  }

  /// Throws Wrong unless the forward's version follows the rule and exists.
  void check_version(const Replica& mine) {
    const std::int64_t expected =
        schedule_.version_rule ? schedule_.version_rule(action_.stage, action_.sample) : -1;
    if (action_.version != expected)
      throw Wrong{"runs at another weight version than the rule says"};
    if (action_.version < 0) return;
    if (action_.version > mine.updates) throw Wrong{"its weight version is not made yet"};
    require_kept(action_.version, mine);
  }

  /// Tokens from one replica to another.
  struct Link {
    std::size_t sent = 0;
    std::vector<Knowledge> takes{};  ///< what the taker knew at each take
  };

  const Schedule& schedule_;
  const std::size_t capacity_;
  std::int64_t samples_;
  std::vector<std::int64_t> at_;    ///< [worker]: index of its current action
  std::vector<std::int64_t> ends_;  ///< [worker]: one past its last action
  std::map<std::tuple<Signal::Kind, int, int>, Link> links_;
  std::int64_t clock_ = 0;
  int worker_ = 0;
  Action action_;
  std::vector<Knowledge> known_;  ///< [worker]
  Lowering lowering_{schedule_};
  Mailbox<Knowledge> mail_{lowering_, capacity_};  ///< notes: what the giver knew
  Buffers buffers_;
  std::vector<Replica> replicas_;
};

}  // namespace

std::string Fault::text(const std::string& schedule) const {
  return "schedule " + schedule + ", clock " + std::to_string(clock) + ", worker " +
         std::to_string(worker) + ", " + action_text(action, true) + ": " + what;
}

std::optional<Fault> verify(const Schedule& schedule) {
  return Proof(schedule, unbounded(schedule), /*finds_sets=*/false).run();
}

std::size_t unbounded(const Schedule& schedule) {
  return 2 * std::size_t(schedule.slots()) + 2;
}

TensorSets tensor_sets(const Schedule& schedule, std::size_t capacity) {
  Proof proof(schedule, capacity, /*finds_sets=*/true);
  if (const auto fault = proof.run()) {
    if (capacity < unbounded(schedule)) return tensor_sets(schedule, 2 * capacity);
    throw std::invalid_argument(fault->text(schedule.name));
  }
  TensorSets found{.capacity = capacity};
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const int replica_id = schedule.replica_id(stage, 0);
    found.inner.push_back(proof.sets(Buffers::Kind::inner, replica_id));
    found.stored.push_back(proof.sets(Buffers::Kind::stored, replica_id));
  }
  for (int cut = 0; cut + 1 < schedule.stages; ++cut) {
    found.activations.push_back(proof.sets(Buffers::Kind::activation, cut));
    found.gradients.push_back(proof.sets(Buffers::Kind::gradient, cut + 1));
  }
  return found;
}

TensorSets tensor_sets(const Schedule& schedule) {
  return tensor_sets(schedule, schedule.group > 1 ? 2 * std::size_t(schedule.group) : 2);
}

TensorSets sets_by_slot(const Schedule& schedule) {
  TensorSets found = tensor_sets(schedule, unbounded(schedule));
  found.activations.assign(found.activations.size(), schedule.slots());
  found.gradients = found.activations;
  return found;
}

Schedule with_fewest_sets(Schedule schedule) {
  constexpr int kMostMore = 6, kMostStages = 16;  // the proof takes seconds for 64 stages
  if (schedule.group > 1 || schedule.most_versions() > 1 || schedule.stages > kMostStages)
    return schedule;
  const int slots = schedule.slots();
  int best = slots, fewest = std::numeric_limits<int>::max();
  for (int more = 0; more <= kMostMore; ++more) {
    schedule.in_flight = slots + more;
    const TensorSets found = tensor_sets(schedule);
    int sets = 0;
    for (const auto* all : {&found.inner, &found.activations, &found.gradients})
      sets = std::accumulate(all->begin(), all->end(), sets);
    if (sets < fewest) {
      fewest = sets;
      best = schedule.in_flight;
    }
  }
  schedule.in_flight = best;
  return schedule;
}

}  // namespace millrace::engine
