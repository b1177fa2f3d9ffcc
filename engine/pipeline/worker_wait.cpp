#include <algorithm>
#include <stdexcept>
#include <thread>

#include "engine/pipeline/worker.h"

namespace millrace::engine {

using Part = StageMeter::Part;

template <class Attempt>
bool Worker::await(const Action& action, const Attempt& attempt, std::int64_t at) {
  patience_->begin(at);
  while (!attempt(patience())) {
    complete_finished();
    if (over(action)) return false;
  }
  return true;
}

bool Worker::wait_for(const Action& action, const Signal& need, Token& token) {
  using Kind = Signal::Kind;
  switch (need.kind) {
    case Kind::admission:
      return !gateway_.admits() || receive(action, need, token);
    case Kind::activation:
    case Kind::gradient:
      return receive(action, need, token);
    case Kind::release:
      return admit(action);
    case Kind::meeting:
      return meet(action, need);
    case Kind::prediction:  // waited for when this one's is shown
      return true;
  }
  return false;
}

bool Worker::receive(const Action& action, const Signal& need, Token& token) {
  TokenQueue& queue = shared_.channels.queue(need);
  WorkerStage& mine = stage(action);
  Clock::duration waited{};
  if (!queue.try_receive(token)) {
    const Clock::time_point began = Clock::now();
    mine.timer.lap(Part::handoff, began);
    if (!await(
            action, [&](auto patience) { return queue.receive(token, patience); }, at_))
      return false;
    waited = Clock::now() - began;
    if (token.sent != Clock::time_point{}) {
      // From another process: waiting until the token was sent, then in transit.
      mine.timer.lap(Part::waiting, std::max(token.sent, mine.meter->last()));
    } else {
      mine.timer.lap(Part::waiting);
    }
  }
  patience_->came(at_, waited);
  if (token.sample != need.sample)
    throw std::logic_error("a link delivered another sample than the schedule says");
  mine.timer.lap(Part::handoff);
  return true;
}

bool Worker::meet(const Action& action, const Signal& need) {
  Token token;
  WorkerStage& mine = stage(action);
  const WorkerStage::Update own = mine.next;
  for (const bool sends : {true, false}) {
    for (int replica = 0; replica < shared_.lowering.replicas(action.stage); ++replica) {
      Signal signal = need;
      signal.to = shared_.lowering.replica_id(action.stage, replica);
      if (signal.to == need.from) continue;
      if (sends) {
        pass_on(signal, own.fate, own.alarm);
        continue;
      }
      std::swap(signal.from, signal.to);
      if (!receive(action, signal, token)) return false;
      // Replicas learn from all of an update's samples, or from none.
      if (mine.next.fate == Fate::trained) mine.next.fate = token.fate;
      mine.next.alarm = std::max(mine.next.alarm, token.alarm);
    }
  }
  return true;
}

void Worker::pass_on(const Signal& signal, Fate fate, Alarm alarm) {
  if (signal.from == signal.to) return;
  shared_.channels.link(signal).send({.sample = signal.sample, .alarm = alarm, .fate = fate},
                                     [&] { return over(signal.sample); });
}

bool Worker::admit(const Action& action) {
  WorkerStage& mine = stage(action);
  const std::int64_t sample = action.sample;
  if (!gateway_.acquire(sample, std::chrono::microseconds(0))) {
    mine.timer.lap(Part::handoff);
    if (!await(action, [&](auto patience) { return gateway_.acquire(sample, patience); }))
      return false;
    mine.timer.lap(Part::waiting);
  }
  if (!gateway_.admits()) return true;
  const Clock::time_point asked = Clock::now();
  patience_->begin(-1);
  for (Feed::Status status = Feed::Status::wait; status != Feed::Status::ready;) {
    status = gateway_.poll(sample, patience());
    // Show predictions while the stream pauses.
    if (status == Feed::Status::wait) end_group();
    if (status == Feed::Status::end || over(sample)) return false;
  }
  mine.timer.lap(Part::waiting);
  gateway_.take(sample, asked);
  admits_ = true;
  pass_on(*shared_.lowering(index_, action).gives.find(Signal::Kind::admission));
  mine.timer.lap(Part::handoff);
  return true;
}

bool Worker::await_target(const Action& action) {
  if (action.op != Op::forward || !shared_.takes_target(action.stage) ||
      gateway_.has_target(action.sample))
    return true;
  return await(action, [&](std::chrono::microseconds patience) {
    if (gateway_.has_target(action.sample)) return true;
    if (patience.count() > 0) std::this_thread::sleep_for(patience);
    return false;
  });
}

bool Worker::compare(const Action& action, Fate& fate) {
  if (!shared_.pipeline.late_targets) return true;
  WorkerStage& mine = stage(action);
  const Clock::time_point asked = Clock::now();
  Feed::Status status = Feed::Status::wait;
  while (status == Feed::Status::wait) {
    status = shared_.feed.target(shared_.in_flight(action.sample), patience());
    if (status == Feed::Status::wait) end_group();  // predictions do not wait for targets
    if (over(action)) return false;
  }
  if (admits_) shared_.pipeline.monitor.paused(Clock::now() - asked);
  mine.timer.lap(Part::waiting);
  const bool has_target = status == Feed::Status::ready;
  if (has_target) {
    mine.step->compare(slot(action.sample));
  } else {
    fate = Fate::without_target;
  }
  if (!shared_.lowering.last(action.stage)) return true;
  info(action.sample).has_target = has_target;
  launches_.complete({.kind = Completion::Kind::compared, .action = action});
  if (!mine.step->defers()) end_group();  // the guard must judge it before its gradient is taken
  return true;
}

}  // namespace millrace::engine
