#include "engine/pipeline/worker.h"

#include <utility>

#include "engine/pipeline/perform.h"

namespace millrace::engine {

using Part = StageMeter::Part;

Worker::Worker(Shared& shared, int index, const PipelineOptions& options)
    : shared_(shared),
      index_(index),
      program_(shared.schedule.workers[index]),
      options_(options),
      edge_(*shared.edge),
      patience_(edge_.patience(program_)),
      track_(options.actions ? &options.actions->track(index) : nullptr),
      by_stage_(shared.schedule.stages),
      stages_(stages_of(program_)),
      outbox_(4 * std::size_t(shared.schedule.slots()) + 8),
      completions_(16 * std::size_t(shared.schedule.slots()) + 16),
      verdicts_(2 * std::size_t(shared.schedule.slots()), Alarm::none) {
  const std::vector<std::int64_t> ages =
      options.own_losses ? own_gradient_ages(shared.schedule) : gradient_ages(shared.schedule);
  for (const int stage : stages_) {
    const int replica_id = shared.lowering.replica_id(stage, program_.replica);
    by_stage_[stage] = {.step = shared.steps[replica_id],
                        .meter = &shared.monitor.meter(replica_id),
                        .age = ages[stage],
                        .learned_in = std::vector<char>(std::size_t(shared.schedule.slots()))};
  }
}

void Worker::run() {
  if (track_ && options_.actions->operations()) capture::operation_watch = track_;
  const bool watched = track_ || options_.before_action || options_.after_action;
  for (at_ = 0; !shared_.stop.load(std::memory_order_relaxed); ++at_) {
    const std::int64_t end = shared_.end.load(std::memory_order_relaxed);
    if (end != Shared::kEndless && program_.over(at_, end)) break;
    const Action action = program_.at(at_);
    if (!over(action)) {
      const Lowered next = shared_.lowering(index_, action);
      if (watched) {
        perform_watched(next);
      } else {
        perform(next);
      }
    }
    if (shared_.groups.ends(index_, at_)) end_group();
  }
  drain();
  for (const int stage : stages_) by_stage_[stage].meter->finish();
}

void Worker::perform_watched(const Lowered& next) {
  if (options_.before_action) options_.before_action(index_, next.action);
  if (track_) track_->begin(next.action, Clock::now());
  const bool done = perform(next);
  if (track_ && done) track_->end(version_of(next.action), Clock::now());
  if (options_.after_action) options_.after_action(index_, next.action);
}

std::int64_t Worker::version_of(const Action& action) {
  const Schedule& schedule = shared_.schedule;
  if (action.op != Op::update && schedule.version_rule)
    return schedule.version_rule(action.stage, action.sample);
  return stage(action).versions;
}

bool Worker::perform(const Lowered& next) {
  const Action& action = next.action;
  Stage& mine = stage(action);
  if (action.op == Op::forward && !mine.step->defers()) {
    mine.meter->begin(Clock::now());
  } else if (action.op == Op::forward || stages_.size() > 1) {
    // The time since this stage's last action was spent on other stages of this worker, or idle.
    mine.meter->pass(Clock::now());
  }
  Token token{.sample = action.sample, .origin = action.sample};
  for (const Signal& need : next.needs) {
    if (!wait_for(action, need, token)) return false;
  }
  if (!await_target(action)) return false;
  if (takes_gradient(action.op)) {
    bool told = true;
    if (!compare(action, told)) return false;
    take_gradient(action, token, told);
  }
  work(next);
  lap(mine, Part::compute);
  for (const Signal& signal : next.gives) give(action, signal);
  if (action.op != Op::update) lap(mine, Part::handoff);
  const bool ends = action.op == Op::update ||
                    (action.op == Op::forward && next.gives.find(Signal::Kind::release));
  if (ends && options_.after_sample && program_.replica == 0)
    options_.after_sample(action.stage, options_.before + action.sample);
  return true;
}

void Worker::work(const Lowered& next) {
  const Action& action = next.action;
  Stage& mine = stage(action);
  if (action.op == Op::update) return update(action);
  if (action.op == Op::forward) {
    mine.newest = action.sample;
    ++mine.forwards;
    mine.forwarded = true;
    return engine::perform(*mine.step, next, shared_.schedule.slots());
  }
  const bool learns = takes_gradient(action.op)    ? mine.learns
                      : action.op == Op::recompute ? info(action.sample).learns
                                                   : bool(mine.learned_in[slot(action.sample)]);
  if (learns) {
    engine::perform(*mine.step, next, shared_.schedule.slots());
    mine.learned = mine.learned || action.op != Op::recompute;
  } else if (adds_gradient(action.op)) {
    mine.step->leave_out(slot(action.sample));
    mine.left_out = true;
    // Where targets come late, only the last stage writes this, so no other may read it.
    if (shared_.lowering.last(action.stage))
      mine.without_target = mine.without_target || !info(action.sample).has_target;
  }
}

void Worker::give(const Action& action, const Signal& signal) {
  using Kind = Signal::Kind;
  const Stage& mine = stage(action);
  switch (signal.kind) {
    case Kind::activation:
      return outbox_.put(shared_.channels.link(signal), {action.sample});
    case Kind::gradient:
      return outbox_.put(shared_.channels.link(signal),
                         {action.sample, mine.origin, mine.alarm, mine.learns});
    case Kind::prediction:
      return completions_.push({.kind = Completion::Kind::predicted, .action = action});
    case Kind::release:
      return completions_.push({.kind = Completion::Kind::released, .action = action});
    case Kind::admission:
    case Kind::meeting:
      return;
  }
}

void Worker::update(const Action& action) {
  Stage& mine = stage(action);
  // An update is the mean over all of its samples, or is skipped.
  const bool left_out = std::exchange(mine.left_out, false);
  bool learned = std::exchange(mine.learned, false) && !left_out;
  edge_.agree(action.stage, learned, mine.pending);
  const bool without_target = std::exchange(mine.without_target, false);
  ++mine.versions;
  // All samples of a minibatch have its age. A stage that goes backward without forwards drains.
  std::int64_t age = shared_.schedule.group > 1 ? mine.age : mine.newest - mine.origin;
  if (!std::exchange(mine.forwarded, false)) age = -1;
  follow_rate();
  const bool asked = mine.apply(learned, options_.guard != nullptr);
  completions_.push({.kind = asked ? Completion::Kind::updated : Completion::Kind::left_out,
                     .action = action,
                     .number = age,
                     .learned = learned,
                     .without_target = without_target});
}

void Worker::follow_rate() {
  const double rate = options_.rate ? options_.rate->load(std::memory_order_relaxed) : rate_;
  if (rate == rate_) return;
  rate_ = rate;
  for (const int stage : stages_) by_stage_[stage].step->set_rate(rate);
}

}  // namespace millrace::engine
