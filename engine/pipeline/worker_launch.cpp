// The end of a launch group, and of its work.
#include <utility>

#include "engine/pipeline/worker.h"

namespace millrace::engine {

void Worker::end_group() {
  for (const int index : stages_) {
    Stage& mine = by_stage_[index];
    if (!mine.step->defers()) continue;
    lap(mine, StageMeter::Part::handoff);
    completions_.push({.action = {.stage = index},
                       .number = std::exchange(mine.host_ns, 0),
                       .forwards = std::exchange(mine.forwards, 0)});
  }
  completions_.launched([&](Completion& completion) {
    capture::Step& step = *stage(completion.action).step;
    completion.launch = step.launch();
    if (step.defers()) completion.launched = Clock::now();
  });
  outbox_.send([&](std::int64_t sample) { return over(sample); });
  complete_finished();
}

void Worker::complete_finished() {
  edge_.progress();
  // Not reentrant: completing a prediction may wait for another replica's, and waiting completes.
  if (std::exchange(completing_, true)) return;
  while (!completions_.empty() && over(completions_.front())) {
    complete(completions_.front());
    completions_.pop();
  }
  completing_ = false;
}

bool Worker::over(const Completion& completion) {
  if (completion.launch < 0) return false;
  capture::Step& step = *stage(completion.action).step;
  if (completion.kind != Completion::Kind::predicted || !step.defers())
    return step.over(completion.launch);
  // A prediction need not wait for the rest of its launch.
  if (!step.shown(slot(completion.action.sample)) && !step.over(completion.launch)) return false;
  showing_ += (Clock::now() - completion.launched - showing_) / 8;
  return true;
}

std::chrono::microseconds Worker::patience() {
  using std::chrono::microseconds;
  if (completions_.empty()) return patience_->next(kPatience);
  const Completion& next = completions_.front();
  if (next.kind != Completion::Kind::predicted || next.launch < 0)
    return patience_->next(kImpatience);
  // A sleep overshoots by about its length: spin shortly before a prediction is due.
  const Clock::duration due = showing_ - (Clock::now() - next.launched);
  const bool soon = due < 2 * kImpatience && due > -showing_ - 2 * kImpatience;
  return patience_->next(soon ? microseconds(0) : kImpatience);
}

void Worker::drain() {
  end_group();
  while (!completions_.empty() && !shared_.stop.load(std::memory_order_relaxed)) {
    for (const int index : stages_) by_stage_[index].step->synchronize();
    complete_finished();
  }
}

void Worker::complete(const Completion& completion) {
  switch (completion.kind) {
    case Completion::Kind::timed:
      return stage(completion.action).record(completion.number, completion.forwards);
    case Completion::Kind::predicted:
      return predicted(completion.action);
    case Completion::Kind::compared:
      return compared(completion.action);
    case Completion::Kind::released:
      return edge_.release(completion.action.sample);
    case Completion::Kind::updated:
    case Completion::Kind::left_out:
      return updated(completion);
  }
}

void Worker::predicted(const Action& action) {
  const Lowered lowered = shared_.lowering(index_, action);
  Token token;
  const Signal* before = lowered.needs.find(Signal::Kind::prediction);
  if (before && !receive(action, *before, token)) return;
  info(action.sample).predicted = Clock::now();
  edge_.shown(action.sample);
  if (!options_.late_targets) compared(action);
  pass_on(*lowered.gives.find(Signal::Kind::prediction));
}

void Worker::compared(const Action& action) {
  const SampleInfo& info = this->info(action.sample);
  const float loss =
      info.has_target ? stage(action).step->loss(slot(action.sample)) : std::nanf("");
  edge_.predicted(action.sample, loss);
  if (!options_.guard) return;
  verdicts_[std::size_t(action.sample) % verdicts_.size()] = options_.guard->judge(info, loss);
}

void Worker::updated(const Completion& update) {
  stage(update.action)
      .count(update.kind == Completion::Kind::updated, update.learned, update.number);
  if (!shared_.lowering.last(update.action.stage)) return;
  const Fate fate = update.learned          ? Fate::trained
                    : update.without_target ? Fate::without_target
                                            : Fate::predicted_only;
  // Replicas update together, each on one sample; the action names the last replica's.
  const int later = shared_.lowering.replicas(update.action.stage) - 1 - program_.replica;
  const std::int64_t end = update.action.sample - later + 1;
  for (std::int64_t sample = end - shared_.schedule.group; sample < end; ++sample) {
    shared_.fates.set(sample, shared_.replayed(sample) ? again(fate) : fate);
  }
}

}  // namespace millrace::engine
