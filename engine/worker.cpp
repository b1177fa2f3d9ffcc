#include "engine/worker.h"

#include <algorithm>  // min
#include <limits>     // no end known
#include <stdexcept>  // std::logic_error
#include <utility>    // exchange

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

bool Worker::wait_for_turn(const Action& action) {
  Circle* circle = shared_.circles[action.stage].get();
  if (!circle || action.sample == 0) return true;
  const int before = shared_.schedule.replica_of(action.stage, action.sample - 1);
  Token token;
  return receive(action.stage, circle->turns(before, program_.replica), action.sample,
                 action.sample - 1, token);
}

void Worker::pass_turn(const Action& action) {
  Circle* circle = shared_.circles[action.stage].get();
  if (!circle) return;
  const int next = shared_.schedule.replica_of(action.stage, action.sample + 1);
  circle->turns(program_.replica, next).send({action.sample}, [&] { return over(action.sample); });
}

bool Worker::wait_for_gradients(const Action& action) {
  Circle* circle = shared_.circles[action.stage].get();
  if (!circle) return true;
  const int replicas = shared_.schedule.replicas_of(action.stage);
  for (int other = 0; other < replicas; ++other) {
    if (other == program_.replica) continue;
    circle->gradients(program_.replica, other).send({action.sample}, [&] {
      return over(action.sample);
    });
  }
  for (int other = 0; other < replicas; ++other) {
    Token token;
    if (other != program_.replica &&
        !receive(action.stage, circle->gradients(other, program_.replica), action.sample,
                 action.sample, token)) {
      return false;
    }
  }
  return true;
}

bool Worker::admit(const Action& action) {
  if (!wait_for_turn(action)) return false;
  if (!shared_.pool.try_acquire(action.sample)) {
    lap(0, Part::handoff);
    if (!await(action.sample,
               [&](auto patience) { return shared_.pool.acquire(action.sample, patience); })) {
      return false;
    }
    lap(0, Part::waiting);
  }
  const Clock::time_point asked = Clock::now();
  for (Feed::Status status = Feed::Status::wait; status != Feed::Status::ready;) {
    if (full(action.sample)) return end_of_stream(action.sample);
    status = shared_.feed.poll(patience());
    if (status == Feed::Status::end) return end_of_stream(action.sample);
    // Who waits for the stream has its samples looked at meanwhile.
    if (status == Feed::Status::wait) end_turn();
    if (over(action.sample)) return false;
  }
  shared_.monitor.admitted(asked, Clock::now());
  lap(0, Part::waiting);
  SampleInfo& info = shared_.infos[slot(action.sample)];
  shared_.feed.take(slot(action.sample), info);
  info.sample = options_.before + action.sample;
  info.learns = choose(action.sample);
  shared_.admitted = action.sample + 1;
  pass_turn(action);
  lap(0, Part::handoff);
  return true;
}

bool Worker::full(std::int64_t sample) const {
  const std::int64_t learned = shared_.admitted - shared_.left_out;
  if (options_.limit > 0 && learned >= options_.limit) return true;
  return options_.drain && sample % shared_.choice == 0 &&
         options_.drain->load(std::memory_order_relaxed);
}

bool Worker::choose(std::int64_t sample) {
  if (sample % shared_.choice == 0) {
    const std::int64_t every =
        options_.train_every ? options_.train_every->load(std::memory_order_relaxed) : 1;
    shared_.learns = sample == 0 || shared_.left_out_groups + 1 >= every;
    shared_.left_out_groups = shared_.learns ? 0 : shared_.left_out_groups + 1;
  }
  if (!shared_.learns) ++shared_.left_out;
  return shared_.learns;
}

template <class Attempt>
bool Worker::await(std::int64_t sample, const Attempt& attempt) {
  while (!attempt(patience())) {
    settle();
    if (over(sample)) return false;
  }
  return true;
}

bool Worker::receive(int stage, TokenQueue& queue, std::int64_t sample, std::int64_t label,
                     Token& token) {
  if (!queue.try_receive(token)) {
    lap(stage, Part::handoff);
    if (!await(sample, [&](auto patience) { return queue.receive(token, patience); })) return false;
    lap(stage, Part::waiting);
  }
  if (token.sample != label)
    throw std::logic_error("a link delivered another sample than the schedule says");
  lap(stage, Part::handoff);
  return true;
}

bool Worker::receive_activations(const Action& action) {
  const int stage = action.stage, from = shared_.schedule.replica_of(stage - 1, action.sample);
  Token token;
  return receive(stage, shared_.links[stage - 1]->activations(from, program_.replica),
                 action.sample, action.sample, token);
}

bool Worker::receive_gradient(const Action& action) {
  const int stage = action.stage;
  Token token{.sample = action.sample, .origin = action.sample};
  if (!last(stage)) {
    const int from = shared_.schedule.replica_of(stage + 1, action.gradient);
    TokenQueue& queue = shared_.links[stage]->gradients(from, program_.replica);
    if (!receive(stage, queue, action.sample, action.gradient, token)) return false;
  }
  origin_[stage] = options_.own_losses ? action.sample : token.origin;
  learns_[stage] = last(stage) || options_.own_losses ? info(action.sample).learns : token.learns;
  // What the guard said is known by then, and known at the same sample in every run.
  const std::int64_t judged = action.sample - (step(stage).defers() ? shared_.schedule.slots() : 0);
  alarms_[stage] = !last(stage) ? token.alarm
                   : judged < 0 ? Alarm::none
                                : verdicts_[std::size_t(judged) % verdicts_.size()];
  pending_[stage] = std::max(pending_[stage], alarms_[stage]);
  return true;
}

bool Worker::end_of_stream(std::int64_t samples) {
  shared_.applied.store(shared_.schedule.applied(samples), std::memory_order_relaxed);
  return false;
}

}  // namespace millrace::engine
