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
      origin_(shared.schedule.stages, 0),
      verdicts_(shared.schedule.slots(), Alarm::none),
      alarms_(shared.schedule.stages, Alarm::none),
      pending_(shared.schedule.stages, Alarm::none),
      newest_(shared.schedule.stages, 0),
      ages_(options.own_losses ? own_gradient_ages(shared.schedule)
                               : gradient_ages(shared.schedule)),
      first_backward_(first_backwards(shared.schedule)) {
  for (int stage = 0; stage < shared.schedule.stages; ++stage)
    units_.push_back(shared.schedule.unit(stage, program_.replica));
}

void Worker::run() {
  for (std::int64_t at = 0; !shared_.stop.load(std::memory_order_relaxed); ++at) {
    const std::int64_t applied = shared_.applied.load(std::memory_order_relaxed);
    if (applied != kEndless && program_.over(at, applied)) break;
    const Action action = program_.at(at);
    if (action.sample >= applied) continue;
    if (options_.before_action) options_.before_action(index_, action);
    switch (action.op) {
      case Op::forward:
        forward(action);
        break;
      case Op::recompute:
        recompute(action);
        break;
      case Op::backward:
      case Op::backward_input:
      case Op::backward_weight:
        backward(action);
        break;
      case Op::update:
        update(action);
        break;
    }
  }
  for (const int stage : stages_of(program_)) meter(stage).finish();
}

void Worker::forward(const Action& action) {
  const int stage = action.stage;
  meter(stage).begin(Clock::now());
  if (!(stage == 0 ? admit(action) : receive_activations(action))) return;
  step(stage).forward(slot(action.sample), action.version);
  newest_[stage] = action.sample;
  lap(stage, Part::compute);
  if (last(stage)) {
    predicted(action);
  } else {
    const Schedule& schedule = shared_.schedule;
    TokenQueue& down = shared_.links[stage]->activations(
        program_.replica, schedule.replica_of(stage + 1, action.sample));
    down.send({action.sample}, [&] { return over(action.sample); });
  }
  if (action.sample < first_backward_[stage]) {
    step(stage).discard(slot(action.sample));
    shared_.pool.release(action.sample);
    end_sample(action);
  }
  lap(stage, Part::handoff);
}

void Worker::predicted(const Action& action) {
  if (!wait_for_turn(action)) return;
  const int at = slot(action.sample);
  const SampleInfo& info = shared_.infos[at];
  shared_.monitor.predicted(info.captured, Clock::now());
  const float loss = step(action.stage).loss(at);
  if (shared_.observer) shared_.observer->predicted(info, at, loss);
  if (options_.guard) verdicts_[at] = options_.guard->judge(action.sample, loss);
  pass_turn(action);
}

void Worker::recompute(const Action& action) {
  step(action.stage).recompute(slot(action.sample));
  lap(action.stage, Part::compute);
}

void Worker::backward(const Action& action) {
  const int stage = action.stage;
  if (takes_gradient(action.op) && !receive_gradient(action)) return;
  const int at = slot(action.sample), gradient = slot(action.gradient);
  if (action.op == Op::backward) step(stage).backward(at, gradient);
  if (action.op == Op::backward_input) step(stage).backward_input(at, gradient);
  if (action.op == Op::backward_weight) step(stage).backward_weight(at);
  lap(stage, Part::compute);
  if (takes_gradient(action.op) && stage > 0) {
    TokenQueue& up = shared_.links[stage - 1]->gradients(
        program_.replica, shared_.schedule.replica_of(stage - 1, action.sample));
    up.send({action.sample, origin_[stage], alarms_[stage]}, [&] { return over(action.sample); });
  }
  if (adds_gradient(action.op)) shared_.pool.release(action.sample);
  lap(stage, Part::handoff);
}

void Worker::update(const Action& action) {
  const int stage = action.stage;
  if (!wait_for_gradients(action)) return;
  apply(stage);
  lap(stage, Part::compute);
  end_sample(action);
  if (last(stage)) {
    shared_.trained.fetch_add(shared_.schedule.group, std::memory_order_relaxed);
  }
}

void Worker::follow_rate() {
  const double rate = options_.rate ? options_.rate->load(std::memory_order_relaxed) : rate_;
  if (rate == rate_) return;
  rate_ = rate;
  for (const int stage : stages_of(program_)) step(stage).set_rate(rate);
}

void Worker::apply(int stage) {
  follow_rate();
  const Alarm alarm = std::exchange(pending_[stage], Alarm::none);
  if (alarm == Alarm::roll_back) {
    step(stage).roll_back(LossGuard::kSlower);
  } else if (alarm == Alarm::discard) {
    step(stage).skip_update();
  } else if (step(stage).update()) {
    meter(stage).updated(gradient_age(stage));
    if (options_.guard && meter(stage).updates() % LossGuard::kSnapshotEvery == 1)
      step(stage).take_snapshot();
    return;
  }
  meter(stage).skipped();
}

void Worker::end_sample(const Action& action) {
  if (options_.after_sample && program_.replica == 0)
    options_.after_sample(action.stage, action.sample);
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
  if (options_.limit > 0 && action.sample >= options_.limit) return end_of_stream(action.sample);
  if (!shared_.pool.try_acquire(action.sample)) {
    lap(0, Part::handoff);
    if (!shared_.pool.acquire(action.sample, [&] { return over(action.sample); })) return false;
    lap(0, Part::waiting);
  }
  for (Feed::Status status; (status = shared_.feed.poll()) != Feed::Status::ready;) {
    if (status == Feed::Status::end) return end_of_stream(action.sample);
    if (over(action.sample)) return false;
  }
  lap(0, Part::waiting);
  SampleInfo& info = shared_.infos[slot(action.sample)];
  shared_.feed.take(slot(action.sample), info);
  info.sample = action.sample;
  shared_.admitted = action.sample + 1;
  pass_turn(action);
  lap(0, Part::handoff);
  return true;
}

bool Worker::receive(int stage, TokenQueue& queue, std::int64_t sample, std::int64_t label,
                     Token& token) {
  if (!queue.try_receive(token)) {
    lap(stage, Part::handoff);
    if (!queue.receive(token, [&] { return over(sample); })) return false;
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
  alarms_[stage] = last(stage) ? verdicts_[slot(action.sample)] : token.alarm;
  pending_[stage] = std::max(pending_[stage], alarms_[stage]);
  return true;
}

bool Worker::end_of_stream(std::int64_t samples) {
  shared_.applied.store(shared_.schedule.applied(samples), std::memory_order_relaxed);
  return false;
}

}  // namespace millrace::engine
