#include "engine/pipeline/worker.h"

#include <limits>   // no end known
#include <utility>  // exchange

namespace millrace::engine {

using Part = StageMeter::Part;

constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();

Worker::Worker(Shared& shared, int index, const PipelineOptions& options)
    : shared_(shared),
      index_(index),
      program_(shared.schedule.workers[index]),
      options_(options),
      track_(options.actions ? &options.actions->track(index) : nullptr),
      origin_(shared.schedule.stages, 0),
      stages_(stages_of(program_)),
      outbox_(4 * std::size_t(shared.schedule.slots()) + 8),
      notes_(16 * std::size_t(shared.schedule.slots()) + 16),
      verdicts_(2 * std::size_t(shared.schedule.slots()), Alarm::none),
      host_ns_(shared.schedule.stages, 0),
      forwards_(shared.schedule.stages, 0),
      untold_ns_(shared.schedule.stages, 0),
      versions_(shared.schedule.stages, 0),
      tries_(shared.schedule.stages, 0),
      skipped_(shared.schedule.stages, 0),
      alarms_(shared.schedule.stages, Alarm::none),
      pending_(shared.schedule.stages, Alarm::none),
      learns_(shared.schedule.stages, true),
      learned_(shared.schedule.stages, false),
      newest_(shared.schedule.stages, 0),
      ages_(options.own_losses ? own_gradient_ages(shared.schedule)
                               : gradient_ages(shared.schedule)),
      first_backward_(first_backwards(shared.schedule)) {
  for (int stage = 0; stage < shared.schedule.stages; ++stage)
    units_.push_back(shared.schedule.unit(stage, program_.replica));
}

void Worker::run() {
  const bool watched = track_ || options_.before_action || options_.after_action;
  for (std::int64_t at = 0; !shared_.stop.load(std::memory_order_relaxed); ++at) {
    const std::int64_t applied = shared_.applied.load(std::memory_order_relaxed);
    if (applied != kEndless && program_.over(at, applied)) break;
    const Action action = program_.at(at);
    if (action.sample < applied) {
      if (watched) {
        perform_watched(action);
      } else {
        perform(action);
      }
    }
    if (shared_.turns.ends(index_, at)) end_turn();
  }
  drain();
  for (const int stage : stages_) meter(stage).finish();
}

void Worker::perform_watched(const Action& action) {
  if (options_.before_action) options_.before_action(index_, action);
  if (track_) track_->begin(action, Clock::now());
  const bool done = perform(action);
  if (track_ && done) track_->end(version_of(action), Clock::now());
  if (options_.after_action) options_.after_action(index_, action);
}

std::int64_t Worker::version_of(const Action& action) {
  const Schedule& schedule = shared_.schedule;
  if (action.op != Op::update && schedule.version_rule)
    return schedule.version_rule(action.stage, action.sample);
  return versions_[action.stage];
}

bool Worker::perform(const Action& action) {
  // What passed since this stage's last action was another's of this worker.
  if (stages_.size() > 1) meter(action.stage).pass(Clock::now());
  switch (action.op) {
    case Op::forward:
      return forward(action);
    case Op::recompute:
      return recompute(action);
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight:
      return backward(action);
    case Op::update:
      return update(action);
  }
  return false;
}

bool Worker::forward(const Action& action) {
  const int stage = action.stage;
  if (step(stage).defers()) {
    meter(stage).pass(Clock::now());
  } else {
    meter(stage).begin(Clock::now());
  }
  if (!(stage == 0 ? admit(action) : receive_activations(action))) return false;
  step(stage).forward(slot(action.sample), action.version);
  newest_[stage] = action.sample;
  ++forwards_[stage];
  lap(stage, Part::compute);
  if (last(stage)) {
    notes_.take({.kind = Note::Kind::predicted, .action = action});
  } else {
    const Schedule& schedule = shared_.schedule;
    TokenQueue& down = shared_.links[stage]->activations(
        program_.replica, schedule.replica_of(stage + 1, action.sample));
    outbox_.put(down, {action.sample});
  }
  if (action.sample < first_backward_[stage]) {
    step(stage).discard(slot(action.sample));
    notes_.take({.kind = Note::Kind::released, .action = action});
    end_sample(action);
  }
  lap(stage, Part::handoff);
  return true;
}

bool Worker::recompute(const Action& action) {
  if (!info(action.sample).learns) return true;
  step(action.stage).recompute(slot(action.sample));
  lap(action.stage, Part::compute);
  return true;
}

bool Worker::backward(const Action& action) {
  const int stage = action.stage;
  if (takes_gradient(action.op) && !receive_gradient(action)) return false;
  const int at = slot(action.sample), gradient = slot(action.gradient);
  // What a weights' gradient belongs to is as old as its sample.
  const bool learns = takes_gradient(action.op) ? learns_[stage] : info(action.sample).learns;
  if (!learns) {
    if (adds_gradient(action.op)) step(stage).discard(at);
  } else if (action.op == Op::backward) {
    step(stage).backward(at, gradient);
  } else if (action.op == Op::backward_input) {
    step(stage).backward_input(at, gradient);
  } else {
    step(stage).backward_weight(at);
  }
  if (learns) learned_[stage] = true;
  lap(stage, Part::compute);
  if (takes_gradient(action.op) && stage > 0) {
    TokenQueue& up = shared_.links[stage - 1]->gradients(
        program_.replica, shared_.schedule.replica_of(stage - 1, action.sample));
    outbox_.put(up, {action.sample, origin_[stage], alarms_[stage], learns});
  }
  if (adds_gradient(action.op)) notes_.take({.kind = Note::Kind::released, .action = action});
  lap(stage, Part::handoff);
  return true;
}

bool Worker::update(const Action& action) {
  const int stage = action.stage;
  if (!wait_for_gradients(action)) return false;
  const bool learned = std::exchange(learned_[stage], false);
  ++versions_[stage];
  notes_.take({.kind = apply(stage, learned) ? Note::Kind::updated : Note::Kind::left_out,
               .action = action,
               .number = gradient_age(stage),
               .flag = learned});
  lap(stage, Part::compute);
  end_sample(action);
  return true;
}

void Worker::follow_rate() {
  const double rate = options_.rate ? options_.rate->load(std::memory_order_relaxed) : rate_;
  if (rate == rate_) return;
  rate_ = rate;
  for (const int stage : stages_) step(stage).set_rate(rate);
}

bool Worker::apply(int stage, bool learned) {
  follow_rate();
  const Alarm alarm = std::exchange(pending_[stage], Alarm::none);
  if (alarm == Alarm::roll_back) {
    step(stage).roll_back(LossGuard::kSlower);
  } else if (alarm == Alarm::discard || !learned) {
    step(stage).skip_update();  // versions are counted on
  } else {
    step(stage).update();
    if (options_.guard && ++tries_[stage] % LossGuard::kSnapshotEvery == 1)
      step(stage).take_snapshot();
    return true;
  }
  return false;
}

void Worker::end_sample(const Action& action) {
  if (options_.after_sample && program_.replica == 0)
    options_.after_sample(action.stage, options_.before + action.sample);
}

std::int64_t Worker::gradient_age(int stage) const {
  // Within a minibatch every sample is as old as the minibatch.
  return shared_.schedule.group > 1 ? ages_[stage] : newest_[stage] - origin_[stage];
}

}  // namespace millrace::engine
