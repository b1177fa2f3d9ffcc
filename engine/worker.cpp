#include "engine/worker.h"

#include <algorithm>  // min
#include <limits>     // no end known
#include <stdexcept>  // std::logic_error

namespace millrace::engine {

using Part = StageMeter::Part;

constexpr std::int64_t kEndless = std::numeric_limits<std::int64_t>::max();

Worker::Worker(Shared& shared, int index, const PipelineOptions& options)
    : shared_(shared),
      index_(index),
      program_(shared.schedule.workers[index]),
      options_(options),
      origin_(shared.schedule.stages, 0),
      newest_(shared.schedule.stages, 0),
      ages_(gradient_ages(shared.schedule)),
      first_backward_(first_backwards(shared.schedule)) {}

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
      case Op::backward:
        backward(action);
        break;
      case Op::update:
        update(action);
        break;
    }
  }
  for (const int stage : stages_of(program_)) shared_.monitor.stage(stage).finish();
}

void Worker::forward(const Action& action) {
  const int stage = action.stage;
  shared_.monitor.stage(stage).begin(Clock::now());
  if (!(stage == 0 ? admit(action) : receive_activations(action))) return;
  const int at = slot(action.sample);
  shared_.steps[stage]->forward(at, action.version);
  newest_[stage] = action.sample;
  lap(stage, Part::compute);
  if (last(stage)) {
    const SampleInfo& info = shared_.infos[at];
    shared_.monitor.predicted(info.captured, Clock::now());
    if (shared_.observer) shared_.observer->predicted(info, at, shared_.steps[stage]->loss(at));
  } else {
    shared_.links[stage]->activations.send({action.sample}, [&] { return over(action.sample); });
  }
  if (action.sample < first_backward_[stage]) {
    shared_.pool.release(action.sample);
    if (options_.after_sample) options_.after_sample(stage, action.sample);
  }
  lap(stage, Part::handoff);
}

void Worker::backward(const Action& action) {
  const int stage = action.stage;
  if (!receive_gradient(action)) return;
  shared_.steps[stage]->backward(slot(action.sample), slot(action.gradient));
  lap(stage, Part::compute);
  if (stage > 0) {
    shared_.links[stage - 1]->gradients.send({action.sample, origin_[stage]},
                                             [&] { return over(action.sample); });
  }
  shared_.pool.release(action.sample);
  lap(stage, Part::handoff);
}

void Worker::update(const Action& action) {
  const int stage = action.stage;
  shared_.steps[stage]->update();
  lap(stage, Part::compute);
  shared_.monitor.stage(stage).updated(gradient_age(stage));
  if (options_.after_sample) options_.after_sample(stage, action.sample);
  if (last(stage)) {
    shared_.trained.store(shared_.trained.load(std::memory_order_relaxed) + shared_.schedule.group,
                          std::memory_order_relaxed);
  }
}

std::int64_t Worker::gradient_age(int stage) const {
  // Within a minibatch every sample is as old as the minibatch.
  return shared_.schedule.group > 1 ? ages_[stage] : newest_[stage] - origin_[stage];
}

bool Worker::admit(const Action& action) {
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
  Token token;
  return receive(action.stage, shared_.links[action.stage - 1]->activations, action.sample,
                 action.sample, token);
}

bool Worker::receive_gradient(const Action& action) {
  Token token{.sample = action.sample, .origin = action.sample};
  if (!last(action.stage) && !receive(action.stage, shared_.links[action.stage]->gradients,
                                      action.sample, action.gradient, token)) {
    return false;
  }
  origin_[action.stage] = token.origin;
  return true;
}

bool Worker::end_of_stream(std::int64_t samples) {
  shared_.applied.store(shared_.schedule.applied(samples), std::memory_order_relaxed);
  return false;
}

}  // namespace millrace::engine
