// What a worker does when its turn ends, and when the work of a turn is over.
#include <algorithm>  // max
#include <utility>    // exchange

#include "engine/pipeline/worker.h"

namespace millrace::engine {

void Worker::end_turn() {
  for (const int stage : stages_) {
    if (!step(stage).defers()) continue;
    lap(stage, StageMeter::Part::handoff);
    notes_.take({.action = {.stage = stage},
                 .number = std::exchange(host_ns_[stage], 0),
                 .forwards = std::exchange(forwards_[stage], 0)});
  }
  notes_.launched([&](Note& note) {
    capture::Step& mine = step(note.action.stage);
    note.launch = mine.launch();
    if (mine.defers()) note.launched = Clock::now();
  });
  outbox_.send([&](std::int64_t sample) { return over(sample); });
  settle();
}

void Worker::settle() {
  if (std::exchange(telling_, true)) return;  // what is told waits for its turn among replicas
  while (!notes_.empty() && can_be_told(notes_.front())) {
    tell(notes_.front());
    notes_.pop();
  }
  telling_ = false;
}

bool Worker::can_be_told(const Note& note) {
  if (note.launch < 0) return false;
  capture::Step& mine = step(note.action.stage);
  if (note.kind != Note::Kind::predicted || !mine.defers()) return mine.over(note.launch);
  // Whoever watches need not wait for what the launch does after the prediction.
  if (!mine.shown(slot(note.action.sample)) && !mine.over(note.launch)) return false;
  showing_ += (Clock::now() - note.launched - showing_) / 8;
  return true;
}

std::chrono::microseconds Worker::patience() {
  if (notes_.empty()) return kPatience;
  const Note& next = notes_.front();
  if (next.kind != Note::Kind::predicted || next.launch < 0) return kImpatience;
  // A sleep ends late by about as much as it lasts, so the last stretch before a prediction is due
  // is looked through. One that stays away has something else to wait for.
  const Clock::duration due = showing_ - (Clock::now() - next.launched);
  const bool soon = due < 2 * kImpatience && due > -showing_ - 2 * kImpatience;
  return soon ? std::chrono::microseconds(0) : kImpatience;
}

void Worker::drain() {
  end_turn();
  while (!notes_.empty() && !shared_.stop.load(std::memory_order_relaxed)) {
    for (const int stage : stages_) step(stage).synchronize();
    settle();
  }
}

void Worker::tell(const Note& note) {
  switch (note.kind) {
    case Note::Kind::timed:
      return timed(note);
    case Note::Kind::predicted:
      return predicted(note.action);
    case Note::Kind::released:
      return shared_.pool.release(note.action.sample);
    case Note::Kind::updated:
    case Note::Kind::left_out:
      return updated(note);
  }
}

void Worker::predicted(const Action& action) {
  if (!wait_for_turn(action)) return;
  const int at = slot(action.sample);
  const SampleInfo& info = this->info(action.sample);
  shared_.monitor.predicted(info.captured, Clock::now());
  const float loss = step(action.stage).loss(at);
  if (shared_.observer) shared_.observer->predicted(info, at, loss);
  if (options_.guard) {
    verdicts_[std::size_t(action.sample) % verdicts_.size()] =
        options_.guard->judge(info.sample, loss);
  }
  pass_turn(action);
}

void Worker::updated(const Note& note) {
  const int stage = note.action.stage;
  if (note.kind == Note::Kind::updated && step(stage).skipped() == skipped_[stage]) {
    meter(stage).updated(note.number);
  } else if (note.flag) {
    skipped_[stage] += note.kind == Note::Kind::updated ? 1 : 0;
    meter(stage).skipped();
  }
  if (!last(stage)) return;
  Tally& tally = shared_.monitor.tally();
  (note.flag ? tally.trained : tally.predicted_only)
      .fetch_add(shared_.schedule.group, std::memory_order_relaxed);
}

void Worker::timed(const Note& note) {
  const int stage = note.action.stage;
  const std::int64_t device = step(stage).duration_ns() + std::exchange(untold_ns_[stage], 0);
  if (note.forwards == 0) {
    untold_ns_[stage] = device;
    return;
  }
  // The host prepares one turn while the device is at another: only what it takes longer counts.
  const std::int64_t host = std::max<std::int64_t>(0, note.number - device);
  for (int i = 0; i < note.forwards; ++i)
    meter(stage).record(device / note.forwards, host / note.forwards);
}

}  // namespace millrace::engine
