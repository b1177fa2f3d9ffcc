#include "engine/worker.h"

#include <algorithm>  // find
#include <set>        // distinct stages
#include <stdexcept>  // std::logic_error

namespace millrace::engine {

using Part = StageMeter::Part;

std::vector<int> stages_of(const Program& program) {
  std::set<int> stages;
  for (const auto* list : {&program.prologue, &program.period}) {
    for (const Action& action : *list) stages.insert(action.stage);
  }
  return {stages.begin(), stages.end()};
}

namespace {

/// The first sample that goes backward at each stage: those before it are done with after their
/// forward.
std::vector<std::int64_t> first_backward(const Program& program, int stages) {
  std::vector<std::int64_t> first(stages, std::numeric_limits<std::int64_t>::max());
  for (const auto* list : {&program.prologue, &program.period}) {
    for (const Action& action : *list) {
      if (action.op == Op::backward) first[action.stage] = std::min(first[action.stage], action.sample);
    }
  }
  return first;
}

}  // namespace

Worker::Worker(Shared& shared, int index, const PipelineOptions& options)
    : shared_(shared),
      index_(index),
      program_(shared.schedule.workers[index]),
      options_(options),
      origin_(shared.schedule.stages, 0),
      retires_at_forward_(first_backward(program_, shared.schedule.stages)) {}

void Worker::run() {
  for (std::int64_t at = 0; applied_ == kUnknown || !program_.over(at, applied_); ++at) {
    const Action action = program_.at(at);
    if (action.sample >= applied_) continue;
    if (options_.before_action) options_.before_action(index_, action);
    bool go_on = true;
    switch (action.op) {
      case Op::forward: go_on = forward(action); break;
      case Op::backward: go_on = backward(action); break;
      case Op::update: update(action); break;
    }
    if (!go_on) return;
  }
  for (const int stage : stages_of(program_)) shared_.monitor.stage(stage).finish();
}

bool Worker::forward(const Action& action) {
  const int stage = action.stage;
  shared_.monitor.stage(stage).begin(Clock::now());
  if (!(stage == 0 ? admit(action) : receive_activations(action))) return false;
  if (action.sample >= samples_) return true;  // the stream ended instead
  const int at = slot(action.sample);
  shared_.steps[stage]->forward(at);
  lap(stage, Part::compute);
  if (last(stage)) {
    const SampleInfo& info = shared_.infos[at];
    shared_.monitor.predicted(info.captured, Clock::now());
    if (shared_.observer) shared_.observer->predicted(info, at, shared_.steps[stage]->loss(at));
  } else if (!shared_.links[stage]->activations.send({action.sample}, shared_.stop)) {
    return false;
  }
  if (action.sample < retires_at_forward_[stage]) {
    shared_.pool.release(action.sample);
    if (options_.after_sample) options_.after_sample(stage, action.sample);
  }
  lap(stage, Part::handoff);
  return true;
}

bool Worker::backward(const Action& action) {
  const int stage = action.stage;
  if (!receive_gradient(action)) return false;
  shared_.steps[stage]->backward(slot(action.sample), slot(action.gradient));
  lap(stage, Part::compute);
  if (stage > 0 && !shared_.links[stage - 1]->gradients.send({action.sample, origin_[stage]}, shared_.stop)) {
    return false;
  }
  shared_.pool.release(action.sample);
  lap(stage, Part::handoff);
  return true;
}

void Worker::update(const Action& action) {
  const int stage = action.stage;
  shared_.steps[stage]->update();
  lap(stage, Part::compute);
  shared_.monitor.stage(stage).updated(action.sample - origin_[stage]);
  if (options_.after_sample) options_.after_sample(stage, action.sample);
  if (last(stage)) {
    shared_.trained.store(shared_.trained.load(std::memory_order_relaxed) + shared_.schedule.group,
                          std::memory_order_relaxed);
  }
}

bool Worker::admit(const Action& action) {
  if (options_.limit > 0 && action.sample >= options_.limit) {
    end_of_stream(0, action.sample);
    return true;
  }
  if (!shared_.pool.try_acquire(action.sample)) {
    lap(0, Part::handoff);
    if (!shared_.pool.acquire(action.sample, shared_.stop)) return false;
    lap(0, Part::waiting);
  }
  for (Feed::Status status; (status = shared_.feed.poll()) != Feed::Status::ready;) {
    if (status == Feed::Status::end) {
      end_of_stream(0, action.sample);
      return true;
    }
    if (shared_.stop.load(std::memory_order_relaxed)) return false;
  }
  lap(0, Part::waiting);
  SampleInfo& info = shared_.infos[slot(action.sample)];
  shared_.feed.take(slot(action.sample), info);
  info.sample = action.sample;
  shared_.admitted = action.sample + 1;
  lap(0, Part::handoff);
  return true;
}

bool Worker::receive_activations(const Action& action) {
  const int stage = action.stage;
  TokenQueue& queue = shared_.links[stage - 1]->activations;
  Token token;
  if (!queue.try_receive(token)) {
    lap(stage, Part::handoff);
    if (!queue.receive(token, shared_.stop)) return false;
    lap(stage, Part::waiting);
  }
  if (token.sample != action.sample) throw std::logic_error("a link delivered another sample's activations");
  if (token.end) end_of_stream(stage, token.sample);
  lap(stage, Part::handoff);
  return true;
}

bool Worker::receive_gradient(const Action& action) {
  const int stage = action.stage;
  if (last(stage)) {
    origin_[stage] = action.sample;
    return true;
  }
  TokenQueue& queue = shared_.links[stage]->gradients;
  Token token;
  if (!queue.try_receive(token)) {
    lap(stage, Part::handoff);
    if (!queue.receive(token, shared_.stop)) return false;
    lap(stage, Part::waiting);
  }
  if (token.sample != action.gradient) throw std::logic_error("a link delivered another sample's gradient");
  origin_[stage] = token.origin;
  lap(stage, Part::handoff);
  return true;
}

void Worker::end_of_stream(int stage, std::int64_t samples) {
  samples_ = samples;
  applied_ = shared_.schedule.applied(samples);
  if (!last(stage)) shared_.links[stage]->activations.send({.sample = samples, .end = true}, shared_.stop);
}

}  // namespace millrace::engine
