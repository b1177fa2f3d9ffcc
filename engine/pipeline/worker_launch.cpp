// What a worker does when a launch group ends, and when its work is over.
#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "engine/pipeline/rank_links.h"
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
  settle();
}

void Worker::settle() {
  // Completing a prediction may wait for another replica's, and a wait settles.
  if (shared_.ranks) shared_.ranks->progress();
  if (std::exchange(settling_, true)) return;
  while (!completions_.empty() && over(completions_.front())) {
    complete(completions_.front());
    completions_.pop();
  }
  settling_ = false;
}

bool Worker::over(const Completion& completion) {
  if (completion.launch < 0) return false;
  capture::Step& step = *stage(completion.action).step;
  if (completion.kind != Completion::Kind::predicted || !step.defers())
    return step.over(completion.launch);
  // Viewers need not wait for what the launch does after the prediction.
  if (!step.shown(slot(completion.action.sample)) && !step.over(completion.launch)) return false;
  showing_ += (Clock::now() - completion.launched - showing_) / 8;
  return true;
}

std::chrono::microseconds Worker::patience() {
  if (shared_.ranks) return patience_with_ranks();
  if (completions_.empty()) return kPatience;
  const Completion& next = completions_.front();
  if (next.kind != Completion::Kind::predicted || next.launch < 0) return kImpatience;
  // A sleep ends late by about as much as it lasts, so the last stretch before a prediction is due
  // is looked through. One that stays away has something else to wait for.
  const Clock::duration due = showing_ - (Clock::now() - next.launched);
  const bool soon = due < 2 * kImpatience && due > -showing_ - 2 * kImpatience;
  return soon ? std::chrono::microseconds(0) : kImpatience;
}

std::chrono::microseconds Worker::patience_with_ranks() {
  using std::chrono::microseconds;
  // What comes from other ranks is taken by whoever waits; rank 0 shows what others predict.
  constexpr microseconds kShows{100}, kRests{2000};
  // A rest ends late by as much as a message takes, so none begins while a step should come.
  constexpr std::chrono::milliseconds kLooks{5};
  const Clock::time_point now = Clock::now();
  const Clock::duration early = due_ - now;
  if (early > kImpatience && completions_.empty() && !shared_.ranks->sends()) {
    const microseconds rest = shared_.ranks->has_feed() ? kShows : kRests;
    return std::min(rest, std::chrono::duration_cast<microseconds>(early));
  }
  if (now - (early > kImpatience ? waits_since_ : due_) > kLooks) return kImpatience;
  std::this_thread::yield();  // ranks may share a core
  return microseconds(0);
}

void Worker::drain() {
  end_group();
  while (!completions_.empty() && !shared_.stop.load(std::memory_order_relaxed)) {
    for (const int index : stages_) by_stage_[index].step->synchronize();
    settle();
  }
}

void Worker::complete(const Completion& completion) {
  switch (completion.kind) {
    case Completion::Kind::timed:
      return timed(completion);
    case Completion::Kind::predicted:
      return predicted(completion.action);
    case Completion::Kind::compared:
      return compared(completion.action);
    case Completion::Kind::released:
      if (shared_.ranks && !shared_.ranks->has_feed())
        return shared_.ranks->release(completion.action.sample);
      return shared_.pool.release(completion.action.sample);
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
  Sample& sample = shared_.in_flight(action.sample);
  SampleInfo& info = sample.info;
  info.predicted = Clock::now();
  if (shared_.ranks && shared_.ranks->shows()) {
    shared_.ranks->send_prediction(action.sample, loss_of(action));
  } else if (!info.replayed) {
    shared_.monitor.predicted(info.captured, info.predicted);
  }
  if (observer_) observer_->shown(sample);
  if (!options_.late_targets) compared(action);
  pass_on(*lowered.gives.find(Signal::Kind::prediction));
}

float Worker::loss_of(const Action& action) {
  return info(action.sample).has_target ? stage(action).step->loss(slot(action.sample))
                                        : std::nanf("");
}

void Worker::compared(const Action& action) {
  Sample& sample = shared_.in_flight(action.sample);
  const SampleInfo& info = sample.info;
  const float loss = loss_of(action);
  if (observer_) observer_->predicted(sample, loss);
  if (!options_.guard) return;
  verdicts_[std::size_t(action.sample) % verdicts_.size()] =
      info.has_target ? options_.guard->judge(info.sample, loss) : Alarm::none;
}

void Worker::updated(const Completion& update) {
  Stage& mine = stage(update.action);
  const bool asked = update.kind == Completion::Kind::updated;
  if (asked && mine.step->skipped() == mine.skipped) {
    mine.meter->updated(update.number);
  } else if (update.learned) {
    mine.skipped += asked ? 1 : 0;
    mine.meter->skipped();
  }
  if (!shared_.lowering.last(update.action.stage)) return;
  const Fate fate = update.learned  ? Fate::trained
                    : update.untold ? Fate::untold
                                    : Fate::predicted_only;
  // Replicas update together, on a sample each; the action names the last replica's.
  const int later = shared_.lowering.replicas(update.action.stage) - 1 - program_.replica;
  const std::int64_t end = update.action.sample - later + 1;
  for (std::int64_t sample = end - shared_.schedule.group; sample < end; ++sample) {
    shared_.fates.set(sample, shared_.replayed(sample) ? again(fate) : fate);
  }
}

void Worker::timed(const Completion& group) {
  Stage& mine = stage(group.action);
  const std::int64_t device = mine.step->duration_ns() + std::exchange(mine.unrecorded_ns, 0);
  if (group.forwards == 0) {
    mine.unrecorded_ns = device;
    return;
  }
  // The host prepares one group while the device is at another: only what it takes longer counts.
  const std::int64_t host = std::max<std::int64_t>(0, group.number - device);
  for (int i = 0; i < group.forwards; ++i)
    mine.meter->record(device / group.forwards, host / group.forwards);
}

}  // namespace millrace::engine
