// What a worker waits for before it acts: samples, tokens of its neighbours, its turn among
// replicas.
#include <algorithm>  // max
#include <stdexcept>  // std::logic_error

#include "engine/pipeline/worker.h"

namespace millrace::engine {

using Part = StageMeter::Part;

template <class Attempt>
bool Worker::await(std::int64_t sample, const Attempt& attempt) {
  while (!attempt(patience())) {
    settle();
    if (over(sample)) return false;
  }
  return true;
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
