#include <readerwriterqueue/readerwriterqueue.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "capture/step.h"
#include "engine/monitor/monitor.h"
#include "engine/pipeline/gateway.h"
#include "engine/pipeline/perform.h"
#include "engine/pipeline/wait_forecast.h"
#include "engine/trace/action_log.h"

namespace millrace::engine {
namespace {

using Part = StageMeter::Part;

/// A stage as its worker runs it. Thread-bound.
struct WorkerStage {
  capture::Step* step = nullptr;
  StageMeter* meter = nullptr;
  ActionTrack* track = nullptr;  ///< may be null
  int samples = 1;               ///< that an update covers and that share its time
  std::int64_t age = 0;          ///< of gradients in the steady state, in samples
  std::int64_t newest = 0;       ///< the sample last forwarded
  std::int64_t versions = 0;     ///< updates of its weights so far
  Token gradient{};              ///< the last one received; `sample`: the one it is applied on
  std::vector<Fate> fates{};     ///< [slot]: of the samples that went backward

  /// Samples that the next update covers.
  struct Update {
    Fate fate = Fate::trained;  ///< the worst of its samples
    Alarm alarm = Alarm::none;  ///< the worst of its gradients
    bool forwarded = false;     ///< the stage has forwarded a sample since the last update
    bool local = false;         ///< with deep supervision: it has the gradient of a local loss
  } next{};
  std::int64_t asked = 0;    ///< updates requested from the step
  std::int64_t skipped = 0;  ///< requested updates known to be skipped

  /// The host's part of a launch group: its time, and how many samples it forwards.
  struct Group {
    std::int64_t host_ns = 0;
    int forwards = 0;
  };
  // A step that computes at once is timed by laps; one that defers, by the launch groups that its
  // device has finished.
  Group group{}, done{};       ///< the current one; those not recorded yet
  std::int64_t device_ns = 0;  ///< of `done`

  /// Counts the time since the last call as `part`.
  void lap(Part part, Clock::time_point now = Clock::now()) {
    if (part == Part::waiting && track) track->waited(meter->last(), now);
    if (!step->defers()) return meter->lap(part, now);
    const std::int64_t passed = meter->pass(now);
    if (part != Part::waiting) group.host_ns += passed;
  }
  /// Counts a group that the device has finished; its samples are recorded with all of an update's.
  void record(const Group& finished) {
    device_ns += step->duration_ns();
    done.host_ns += finished.host_ns;
    done.forwards += finished.forwards;
    if (done.forwards < samples) return;
    const auto [host_ns, steps] = std::exchange(done, {});
    const std::int64_t device = std::exchange(device_ns, 0);
    // The host prepares one group while the device runs another: only its excess counts.
    const std::int64_t host = std::max<std::int64_t>(0, host_ns - device);
    for (int i = 0; i < steps; ++i) meter->record(device / steps, host / steps);
  }
};

/// An event of a stage that is reported once the launch that it belongs to has finished.
struct Completion {
  enum class Kind {
    timed,      ///< the launch group's time is known
    predicted,  ///< the prediction is ready, and the loss unless targets come late
    compared,   ///< the loss with a late target is ready
    released,   ///< the stage is done with the sample
    updated,    ///< the weights are updated, unless it was left out or the step skipped it
  };
  Kind kind = Kind::timed;
  Action action{};
  WorkerStage::Group group{};  ///< timed: the launch group
  bool due = false;            ///< updated: it has gradients
  bool asked = false;          ///< updated: it is due, and the guard did not prevent it
  std::int64_t staleness = 0;  ///< updated: age of its samples' gradient, see StageMeter
  Fate fate = Fate::trained;   ///< updated: of the samples that the update covers
  std::int64_t launch = 0;     ///< number of the launch
  Clock::time_point launched{};
};

/// A worker's launched but uncompleted events, in order, and the current launch group's tokens.
/// Thread-bound. Allocates only if more is in flight than `slots` samples need.
class Launches {
 public:
  /// [stage]; must outlive this
  Launches(std::vector<WorkerStage>& stages, int slots)
      : stages_(stages), slots_(slots), launched_(16 * std::size_t(slots) + 16) {
    tokens_.reserve(4 * std::size_t(slots) + 8);
    group_.reserve(16 * std::size_t(slots) + 16);
  }

  void send(Channel& to, const Token& token) { tokens_.emplace_back(&to, token); }
  void complete(const Completion& completion) { group_.push_back(completion); }
  bool empty() const { return group_.empty() && !launched_.peek(); }

  /// Launches the group's work, then sends its tokens until done or `give_up(sample)`.
  template <class GiveUp>
  void end_group(const GiveUp& give_up) {
    for (Completion& completion : group_) {
      capture::Step& step = step_of(completion);
      completion.launch = step.launch();
      if (step.defers()) completion.launched = Clock::now();
      launched_.enqueue(completion);
    }
    group_.clear();
    for (const auto& [channel, token] : tokens_)
      channel->send(token, [&, sample = token.sample] { return give_up(sample); });
    tokens_.clear();
  }

  /// The oldest event if its launch is over; otherwise null. Valid until pop().
  const Completion* finished() {
    const Completion* const oldest = launched_.peek();
    if (!oldest) return nullptr;
    capture::Step& step = step_of(*oldest);
    if (oldest->kind != Completion::Kind::predicted || !step.defers())
      return step.over(oldest->launch) ? oldest : nullptr;
    // A prediction need not wait for the rest of its launch.
    if (!step.shown(int(oldest->action.sample % slots_)) && !step.over(oldest->launch))
      return nullptr;
    showing_ += (Clock::now() - oldest->launched - showing_) / 8;
    return oldest;
  }
  void pop() { launched_.pop(); }

  /// How long to wait before polling for finished work again.
  std::chrono::microseconds patience() const {
    if (empty()) return kPatience;
    const Completion* const next = launched_.peek();
    if (!next || next->kind != Completion::Kind::predicted) return kImpatience;
    // A sleep overshoots by about its length: spin shortly before a prediction is due.
    const Clock::duration due = showing_ - (Clock::now() - next->launched);
    const bool soon = due < 2 * kImpatience && due > -showing_ - 2 * kImpatience;
    return soon ? std::chrono::microseconds(0) : kImpatience;
  }

 private:
  capture::Step& step_of(const Completion& completion) const {
    return *stages_[std::size_t(completion.action.stage)].step;
  }

  std::vector<WorkerStage>& stages_;
  const int slots_;
  std::vector<std::pair<Channel*, Token>> tokens_;  ///< of the current group
  std::vector<Completion> group_;                   ///< of the current group
  moodycamel::ReaderWriterQueue<Completion> launched_;
  Clock::duration showing_{};  ///< from launch to prediction, running mean
};

class Worker {
 public:
  Worker(Shared& shared, int index)
      : shared_(shared),
        index_(index),
        program_(shared.schedule().workers[index]),
        options_(shared.options),
        gateway_(*shared.gateway),
        waits_(program_),
        track_(options_.actions ? &options_.actions->track(index) : nullptr),
        by_stage_(shared.schedule().stages),
        stages_(stages_of(program_)),
        launches_(by_stage_, shared.schedule().slots()),
        verdicts_(2 * std::size_t(shared.schedule().slots()), Alarm::none) {
    const Pipeline& pipeline = shared.pipeline;
    const std::vector<std::int64_t> ages = gradient_ages(pipeline.schedule, pipeline.own_losses);
    for (const int stage : stages_) {
      const int replica_id = shared.lowering.replica_id(stage, program_.replica);
      capture::Step* const step = pipeline.steps[replica_id];
      StageMeter& meter = pipeline.monitor.meter(replica_id);
      by_stage_[stage] = {.step = step,
                          .meter = &meter,
                          .track = track_,
                          .samples = pipeline.schedule.group,
                          .age = ages[stage],
                          .fates = std::vector<Fate>(std::size_t(pipeline.schedule.slots()))};
    }
  }

  void run() {
    if (track_ && options_.actions->operations()) capture::operation_watch = track_;
    for (at_ = 0; !shared_.stop.load(std::memory_order_relaxed); ++at_) {
      const std::int64_t end = shared_.end.load(std::memory_order_relaxed);
      if (end != Shared::kEndless && program_.over(at_, end)) break;
      const Action action = program_.at(at_);
      if (!over(action)) {
        if (options_.before_action) options_.before_action(index_, action);
        if (track_) track_->begin(action, Clock::now());
        const bool done = perform(shared_.lowering(index_, action));
        if (track_ && done) track_->end(version_of(action), Clock::now());
        if (options_.after_action) options_.after_action(index_, action);
      }
      if (shared_.groups.ends(index_, at_)) end_group();
    }
    drain();
    for (const int stage : stages_) {
      by_stage_[stage].meter->finish();
      shared_.channels.close(shared_.lowering.replica_id(stage, program_.replica));
    }
  }

 private:
  /// False if the action is skipped because one of its waits was given up.
  bool perform(const Lowered& next) {
    if (!await_all(next)) return false;
    const Action& action = next.action;
    WorkerStage& mine = stage(action);
    if (action.op == Op::update) {
      update(action);
    } else if (fate_for(action) == Fate::trained) {
      engine::perform(*mine.step, next, shared_.schedule().slots());
      mine.next.local |= action.op == Op::backward_local;
    } else if (adds_gradient(action.op)) {
      mine.step->leave_out(slot(action.sample));
      mine.next.fate = std::max(mine.next.fate, mine.fates[slot(action.sample)]);
    }
    mine.lap(Part::compute);
    for (const Signal& signal : next.gives) give(action, signal);
    if (action.op != Op::update) mine.lap(Part::handoff);
    const bool ends = action.op == Op::update ||
                      (action.op == Op::forward && next.gives.find(Signal::Kind::release));
    if (ends && options_.after_sample && program_.replica == 0)
      options_.after_sample(action.stage, shared_.pipeline.before + action.sample);
    return true;
  }
  /// Waits for what the action needs, takes it and counts a forward. False if a wait was given up.
  bool await_all(const Lowered& next) {
    const Action& action = next.action;
    WorkerStage& mine = stage(action);
    if (action.op == Op::forward && !mine.step->defers()) {
      mine.meter->begin(Clock::now(), shared_.schedule().group);
    } else if (action.op == Op::forward || stages_.size() > 1) {
      // The time since this stage's last action was spent on other stages of this worker, or idle.
      mine.meter->pass(Clock::now());
    }
    Token token{.sample = action.sample, .origin = action.sample};
    for (const Signal& need : next.needs) {
      if (!wait_for(action, need, token)) return false;
    }
    if (!await_target(action)) return false;
    if (shared_.lowering.begins_at_loss(action, shared_.pipeline.own_losses)) {
      token.fate = info(action.sample).fate;
      if (!compare(action, token.fate)) return false;
      mine.fates[slot(action.sample)] = token.fate;
    }
    if (takes_gradient(action.op)) take_gradient(action, token);
    if (action.op == Op::forward) {
      mine.newest = action.sample;
      ++mine.group.forwards;
      mine.next.forwarded = true;
    }
    return true;
  }
  /// The action's work is left out unless this is `trained`. Forwards always run, to predict.
  Fate fate_for(const Action& action) {
    if (action.op == Op::forward) return Fate::trained;
    return action.op == Op::recompute ? info(action.sample).fate
                                      : stage(action).fates[slot(action.sample)];
  }
  void give(const Action& action, const Signal& signal) {
    using Kind = Signal::Kind;
    switch (signal.kind) {
      case Kind::activation:
        return launches_.send(shared_.channels.of(signal), {action.sample});
      case Kind::gradient:
        return launches_.send(shared_.channels.of(signal), stage(action).gradient);
      case Kind::prediction:
        return launches_.complete({.kind = Completion::Kind::predicted, .action = action});
      case Kind::release:
        return launches_.complete({.kind = Completion::Kind::released, .action = action});
      case Kind::admission:
      case Kind::meeting:
        return;
    }
  }
  /// Updates in the weights it used or updated.
  std::int64_t version_of(const Action& action) {
    const Schedule& schedule = shared_.schedule();
    if (action.op != Op::update && schedule.version_rule)
      return schedule.version_rule(action.stage, action.sample);
    return stage(action).versions;
  }
  void take_gradient(const Action& action, const Token& token) {
    WorkerStage& mine = stage(action);
    mine.gradient = token;
    mine.gradient.sample = action.sample;
    mine.gradient.sent = {};
    if (shared_.pipeline.own_losses) mine.gradient.origin = action.sample;
    if (shared_.lowering.last(action.stage)) {
      // The guard's verdict on this sample is always known by now, so that runs repeat.
      const std::int64_t judged =
          action.sample - (mine.step->defers() ? shared_.schedule().slots() : 0);
      mine.gradient.alarm = judged < 0 ? Alarm::none : verdict(judged);
    }
    mine.fates[slot(action.sample)] = token.fate;
    mine.next.alarm = std::max(mine.next.alarm, mine.gradient.alarm);
  }
  void update(const Action& action) {
    WorkerStage& mine = stage(action);
    auto [fate, alarm, forwarded, local] = std::exchange(mine.next, {});
    // An update is the mean over all of its samples, or is skipped. But a local gradient is of a
    // later sample, which does not share their fate.
    gateway_.agree(action.stage, fate, alarm);
    const bool due = fate == Fate::trained || local;
    ++mine.versions;
    // A stage that goes backward without forwards drains.
    const std::int64_t age =
        shared_.schedule().ages_by_version() ? mine.age : mine.newest - mine.gradient.origin;
    const double rate = options_.rate ? options_.rate->load(std::memory_order_relaxed) : rate_;
    if (rate != rate_) {
      rate_ = rate;
      for (const int stage : stages_) by_stage_[stage].step->set_rate(rate);
    }
    bool asked = false;
    if (alarm == Alarm::roll_back) {
      mine.step->roll_back();
    } else if (alarm == Alarm::discard || !due) {
      mine.step->skip_update();  // the version still advances
    } else {
      if (shared_.pipeline.guard && mine.asked++ % LossGuard::kSnapshotEvery == 0)
        mine.step->take_snapshot();
      mine.step->update();
      asked = true;
    }
    launches_.complete({.kind = Completion::Kind::updated,
                        .action = action,
                        .due = due,
                        .asked = asked,
                        .staleness = forwarded && fate == Fate::trained ? age : -1,
                        .fate = fate});
  }

  // Waits: return false if given up.
  bool wait_for(const Action& action, const Signal& need, Token& token) {
    using Kind = Signal::Kind;
    switch (need.kind) {
      case Kind::admission:
        return !gateway_.admits() || receive(action, need, token);
      case Kind::activation:
      case Kind::gradient:
        return receive(action, need, token);
      case Kind::release:
        return admit(action);
      case Kind::meeting:
        return meet(action, need);
      case Kind::prediction:  // waited for when this one's is shown
        return true;
    }
    return false;
  }
  bool receive(const Action& action, const Signal& need, Token& token) {
    TokenQueue& queue = *shared_.channels.of(need).queue;
    WorkerStage& mine = stage(action);
    Clock::duration waited{};
    if (!queue.receive(token, std::chrono::microseconds(0))) {
      const Clock::time_point began = Clock::now();
      mine.lap(Part::handoff, began);
      if (!await(
              action, [&](auto patience) { return queue.receive(token, patience); }, at_))
        return false;
      waited = Clock::now() - began;
      if (token.sent != Clock::time_point{}) {
        // From another process: waiting until the token was sent, then in transit.
        mine.lap(Part::waiting, std::max(token.sent, mine.meter->last()));
      } else {
        mine.lap(Part::waiting);
      }
    }
    waits_.waited(at_, waited);
    if (token.sample != need.sample)
      throw std::logic_error("a link delivered another sample than the schedule says");
    mine.lap(Part::handoff);
    return true;
  }
  /// All replicas, before an update.
  bool meet(const Action& action, const Signal& need) {
    Token token;
    WorkerStage& mine = stage(action);
    const WorkerStage::Update own = mine.next;
    for (const bool sends : {true, false}) {
      for (int replica = 0; replica < shared_.lowering.replicas(action.stage); ++replica) {
        Signal signal = need;
        signal.to = shared_.lowering.replica_id(action.stage, replica);
        if (signal.to == need.from) continue;
        if (sends) {
          pass_on(signal, own.fate, own.alarm);
          continue;
        }
        std::swap(signal.from, signal.to);
        if (!receive(action, signal, token)) return false;
        // Replicas learn from all of an update's samples, or from none.
        if (mine.next.fate == Fate::trained) mine.next.fate = token.fate;
        mine.next.alarm = std::max(mine.next.alarm, token.alarm);
      }
    }
    return true;
  }
  bool admit(const Action& action) {
    WorkerStage& mine = stage(action);
    const std::int64_t sample = action.sample;
    if (!gateway_.acquire(sample, std::chrono::microseconds(0))) {
      mine.lap(Part::handoff);
      if (!await(action, [&](auto patience) { return gateway_.acquire(sample, patience); }))
        return false;
      mine.lap(Part::waiting);
    }
    if (!gateway_.admits()) return true;
    const Clock::time_point asked = Clock::now();
    const auto poll = [&] { return gateway_.poll(sample, patience()); };
    if (await_feed(sample, poll) != Feed::Status::ready) return false;
    mine.lap(Part::waiting);
    gateway_.take(sample, asked);
    admits_ = true;
    pass_on(*shared_.lowering(index_, action).gives.find(Signal::Kind::admission));
    mine.lap(Part::handoff);
    return true;
  }
  bool await_target(const Action& action) {
    if (action.op != Op::forward || !shared_.takes_target(action.stage) ||
        gateway_.has_target(action.sample))
      return true;
    return await(action, [&](std::chrono::microseconds patience) {
      if (gateway_.has_target(action.sample)) return true;
      if (patience.count() > 0) std::this_thread::sleep_for(patience);
      return false;
    });
  }
  /// Waits for a late target and takes the loss. `fate`: of the sample; changed without a target.
  bool compare(const Action& action, Fate& fate) {
    if (!shared_.pipeline.late_targets) return true;
    WorkerStage& mine = stage(action);
    const Clock::time_point asked = Clock::now();
    const Feed::Status status = await_feed(
        action, [&] { return shared_.feed.target(shared_.in_flight(action.sample), patience()); });
    if (status == Feed::Status::wait) return false;
    if (admits_ && !shared_.feed.computes_targets())
      shared_.pipeline.monitor.paused(Clock::now() - asked);
    mine.lap(Part::waiting);
    const bool has_target = status == Feed::Status::ready;
    if (has_target) {
      mine.step->compare(slot(action.sample));
    } else {
      fate = Fate::without_target;
    }
    if (!shared_.lowering.last(action.stage)) return true;
    info(action.sample).has_target = has_target;
    launches_.complete({.kind = Completion::Kind::compared, .action = action});
    if (!mine.step->defers()) end_group();  // the guard must judge it before its gradient is taken
    return true;
  }
  /// Polls the feed until it no longer says wait, and shows finished predictions meanwhile. Returns
  /// wait if given up. `what`: see Shared::over().
  template <class What, class Poll>
  Feed::Status await_feed(const What& what, const Poll& poll) {
    begin_wait(-1);
    for (Feed::Status status = poll(); !over(what); status = poll()) {
      if (status != Feed::Status::wait) return status;
      end_group();
    }
    return Feed::Status::wait;
  }
  /// Tries until `attempt` succeeds. `at`: the program's action whose token it waits for.
  template <class Attempt>
  bool await(const Action& action, const Attempt& attempt, std::int64_t at = -1) {
    begin_wait(at);
    while (!attempt(patience())) {
      complete_finished();
      if (over(action)) return false;
    }
    return true;
  }
  /// Sends `signal` at once, to another replica.
  void pass_on(const Signal& signal, Fate fate = Fate::trained, Alarm alarm = Alarm::none) {
    if (signal.from == signal.to) return;
    shared_.channels.of(signal).send({.sample = signal.sample, .alarm = alarm, .fate = fate},
                                     [&] { return over(signal.sample); });
  }

  // Launch groups, and reactions to their end.
  void end_group() {
    for (const int index : stages_) {
      WorkerStage& mine = by_stage_[index];
      if (!mine.step->defers()) continue;
      mine.lap(Part::handoff);
      launches_.complete({.action = {.stage = index}, .group = std::exchange(mine.group, {})});
    }
    launches_.end_group([&](std::int64_t sample) { return over(sample); });
    complete_finished();
  }
  void complete_finished() {
    gateway_.progress();
    // Not reentrant: completing a prediction may wait for another replica's, and waiting completes.
    if (std::exchange(completing_, true)) return;
    while (const Completion* const completion = launches_.finished()) {
      complete(*completion);
      launches_.pop();
    }
    completing_ = false;
  }
  void drain() {
    end_group();
    while (!launches_.empty() && !shared_.stop.load(std::memory_order_relaxed)) {
      for (const int index : stages_) by_stage_[index].step->synchronize();
      complete_finished();
    }
  }
  void complete(const Completion& completion) {
    switch (completion.kind) {
      case Completion::Kind::timed:
        return stage(completion.action).record(completion.group);
      case Completion::Kind::predicted:
        return predicted(completion.action);
      case Completion::Kind::compared:
        return compared(completion.action);
      case Completion::Kind::released:
        return gateway_.release(completion.action.sample);
      case Completion::Kind::updated:
        return updated(completion);
    }
  }
  /// Shows the last stage's prediction.
  void predicted(const Action& action) {
    const Lowered lowered = shared_.lowering(index_, action);
    Token token;
    const Signal* before = lowered.needs.find(Signal::Kind::prediction);
    if (before && !receive(action, *before, token)) return;
    info(action.sample).predicted = Clock::now();
    gateway_.shown(action.sample);
    if (!shared_.pipeline.late_targets) compared(action);
    pass_on(*lowered.gives.find(Signal::Kind::prediction));
  }
  /// Shows the last stage's loss, and judges it.
  void compared(const Action& action) {
    const SampleInfo& info = this->info(action.sample);
    const float loss =
        info.has_target ? stage(action).step->loss(slot(action.sample)) : std::nanf("");
    gateway_.predicted(action.sample, loss);
    shared_.fates.predicted(action.sample, info.has_target ? info.fate : Fate::without_target,
                            info.replayed);
    if (LossGuard* const guard = shared_.pipeline.guard)
      verdict(action.sample) = guard->judge(info, loss);
  }
  void updated(const Completion& update) {
    WorkerStage& mine = stage(update.action);
    if (update.asked && mine.step->skipped() == mine.skipped) {
      mine.meter->updated(update.staleness);
    } else if (update.due) {
      mine.skipped += update.asked ? 1 : 0;  // the step itself may have skipped it
      mine.meter->skipped();
    }
    if (!shared_.lowering.last(update.action.stage)) return;
    // Replicas update together, each on one sample; the action names the last replica's.
    const int later = shared_.lowering.replicas(update.action.stage) - 1 - program_.replica;
    const std::int64_t end = update.action.sample - later + 1;
    for (std::int64_t sample = end - shared_.schedule().group; sample < end; ++sample)
      shared_.fates.set(sample, update.fate);
  }
  /// For the token that action `at` of the program needs; -1: for something else.
  void begin_wait(std::int64_t at) {
    wait_.since = Clock::now();
    wait_.due = wait_.since + (at < 0 ? Clock::duration() : waits_.at_least(at));
  }
  /// How long to wait before polling launched work again.
  std::chrono::microseconds patience() { return gateway_.patience(wait_, launches_.patience()); }

  bool over(std::int64_t sample) const { return shared_.over(sample); }
  bool over(const Action& action) const { return shared_.over(action); }
  WorkerStage& stage(const Action& action) { return by_stage_[std::size_t(action.stage)]; }
  SampleInfo& info(std::int64_t sample) { return shared_.in_flight(sample).info; }
  int slot(std::int64_t sample) const { return shared_.pool.slot_of(sample); }
  Alarm& verdict(std::int64_t sample) { return verdicts_[std::size_t(sample) % verdicts_.size()]; }

  Shared& shared_;
  const int index_;
  const Program& program_;
  const PipelineOptions& options_;
  Gateway& gateway_;
  WaitForecast waits_;
  Wait wait_;                          ///< the latest
  ActionTrack* track_;                 ///< null: no log
  std::vector<WorkerStage> by_stage_;  ///< [stage]; only this worker's are filled
  std::vector<int> stages_;            ///< this worker's
  Launches launches_;
  double rate_ = 1.0;  ///< last passed on to the stages
  bool completing_ = false;
  std::int64_t at_ = 0;  ///< index of the current action in its program
  bool admits_ = false;
  std::vector<Alarm> verdicts_;  ///< [sample % size]: the guard's, on the latest samples
};

}  // namespace

void run_worker(Shared& shared, int index) {
  Worker(shared, index).run();
}

}  // namespace millrace::engine
