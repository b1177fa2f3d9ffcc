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
      return !edge_.admits() || receive(action, need, token);
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
  Stage& mine = stage(action);
  Clock::duration waited{};
  if (!queue.try_receive(token)) {
    const Clock::time_point began = Clock::now();
    lap(mine, Part::handoff, began);
    if (!await(
            action, [&](auto patience) { return queue.receive(token, patience); }, at_))
      return false;
    waited = Clock::now() - began;
    if (token.sent != Clock::time_point{}) {
      // From another process: waiting until the token was sent, then in transit.
      lap(mine, Part::waiting, std::max(token.sent, mine.meter->last()));
    } else {
      lap(mine, Part::waiting);
    }
  }
  patience_->came(at_, waited);
  if (token.sample != need.sample)
    throw std::logic_error("a link delivered another sample than the schedule says");
  lap(mine, Part::handoff);
  return true;
}

bool Worker::meet(const Action& action, const Signal& need) {
  Token token;
  bool others_learn = true;
  Stage& mine = stage(action);
  const Alarm said = mine.pending;
  for (const bool sends : {true, false}) {
    for (int replica = 0; replica < shared_.lowering.replicas(action.stage); ++replica) {
      Signal signal = need;
      signal.to = shared_.lowering.replica_id(action.stage, replica);
      if (signal.to == need.from) continue;
      if (sends) {
        pass_on(signal, !mine.left_out, said);
        continue;
      }
      std::swap(signal.from, signal.to);
      if (!receive(action, signal, token)) return false;
      others_learn = others_learn && token.learns;
      mine.pending = std::max(mine.pending, token.alarm);
    }
  }
  mine.without_target = mine.without_target || (!others_learn && mine.learned);
  mine.left_out = mine.left_out || !others_learn;
  return true;
}

void Worker::pass_on(const Signal& signal, bool learns, Alarm alarm) {
  if (signal.from == signal.to) return;
  shared_.channels.link(signal).send({.sample = signal.sample, .alarm = alarm, .learns = learns},
                                     [&] { return over(signal.sample); });
}

bool Worker::admit(const Action& action) {
  Stage& mine = stage(action);
  const std::int64_t sample = action.sample;
  if (!edge_.acquire(sample, std::chrono::microseconds(0))) {
    lap(mine, Part::handoff);
    if (!await(action, [&](auto patience) { return edge_.acquire(sample, patience); }))
      return false;
    lap(mine, Part::waiting);
  }
  if (!edge_.admits()) return true;
  const Clock::time_point asked = Clock::now();
  patience_->begin(-1);
  for (Feed::Status status = Feed::Status::wait; status != Feed::Status::ready;) {
    status = edge_.poll(sample, patience());
    // Show predictions while the stream pauses.
    if (status == Feed::Status::wait) end_group();
    if (status == Feed::Status::end || over(sample)) return false;
  }
  lap(mine, Part::waiting);
  edge_.take(sample, asked);
  admits_ = true;
  pass_on(*shared_.lowering(index_, action).gives.find(Signal::Kind::admission));
  lap(mine, Part::handoff);
  return true;
}

bool Worker::await_target(const Action& action) {
  const bool takes_loss = shared_.lowering.last(action.stage) || options_.own_losses;
  if (action.op != Op::forward || !takes_loss || edge_.has_target(action.sample)) return true;
  return await(action, [&](std::chrono::microseconds patience) {
    if (edge_.has_target(action.sample)) return true;
    if (patience.count() > 0) std::this_thread::sleep_for(patience);
    return false;
  });
}

bool Worker::compare(const Action& action, bool& told) {
  const bool last = shared_.lowering.last(action.stage);
  if (!options_.late_targets || !(last || options_.own_losses)) return true;
  Stage& mine = stage(action);
  const int slot = this->slot(action.sample);
  const Clock::time_point asked = Clock::now();
  for (Feed::Status status = Feed::Status::wait; status == Feed::Status::wait;) {
    status = shared_.feed.target(shared_.in_flight(action.sample), patience());
    told = status == Feed::Status::ready;
    if (status == Feed::Status::wait) end_group();  // predictions do not wait for targets
    if (over(action)) return false;
  }
  if (admits_) shared_.monitor.paused(Clock::now() - asked);
  lap(mine, Part::waiting);
  if (told) mine.step->compare(slot);
  if (!last) return true;
  info(action.sample).has_target = told;
  completions_.push({.kind = Completion::Kind::compared, .action = action});
  if (!mine.step->defers()) end_group();  // the guard must judge it before its gradient is taken
  return true;
}

void Worker::take_gradient(const Action& action, const Token& token, bool told) {
  Stage& mine = stage(action);
  const bool last = shared_.lowering.last(action.stage);
  mine.origin = options_.own_losses ? action.sample : token.origin;
  mine.learns = last || options_.own_losses ? info(action.sample).learns && told : token.learns;
  mine.learned_in[slot(action.sample)] = mine.learns;
  // The guard's verdict on this sample is certain to be known: the same in every run.
  const std::int64_t judged = action.sample - (mine.step->defers() ? shared_.schedule.slots() : 0);
  mine.alarm = !last        ? token.alarm
               : judged < 0 ? Alarm::none
                            : verdicts_[std::size_t(judged) % verdicts_.size()];
  mine.pending = std::max(mine.pending, mine.alarm);
}

}  // namespace millrace::engine
