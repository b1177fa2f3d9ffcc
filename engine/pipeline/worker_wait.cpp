// What a worker waits for before it acts.
#include <algorithm>
#include <stdexcept>
#include <thread>

#include "engine/pipeline/rank_links.h"
#include "engine/pipeline/worker.h"

namespace millrace::engine {

using Part = StageMeter::Part;

template <class Attempt>
bool Worker::await(std::int64_t sample, const Attempt& attempt, Clock::duration foreseen) {
  if (shared_.ranks) due_ = (waits_since_ = Clock::now()) + foreseen;
  while (!attempt(patience())) {
    settle();
    if (over(sample)) return false;
  }
  return true;
}

bool Worker::wait_for(const Action& action, const Signal& need, Token& token) {
  using Kind = Signal::Kind;
  switch (need.kind) {
    case Kind::admission:
      // Rank 0 takes all samples from the feed.
      if (shared_.ranks && !shared_.ranks->has_feed()) return true;
      return receive(action, need, token);
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
            action.sample, [&](auto patience) { return queue.receive(token, patience); },
            waits_.at_least(at_)))
      return false;
    waited = Clock::now() - began;
    if (token.sent != Clock::time_point{}) {
      // It comes from another rank. What was under way meanwhile was handed over; before, there was
      // nothing to do.
      lap(mine, Part::waiting, std::max(token.sent, mine.meter->last()));
    } else {
      lap(mine, Part::waiting);
    }
  }
  if (shared_.ranks) waits_.waited(at_, waited);
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
  mine.untold = mine.untold || (!others_learn && mine.learned);
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
  if (shared_.ranks && !shared_.ranks->has_feed()) return await_sample(action);
  if (!shared_.pool.try_acquire(action.sample)) {
    lap(mine, Part::handoff);
    if (!await(action.sample,
               [&](auto patience) { return shared_.pool.acquire(action.sample, patience); })) {
      return false;
    }
    lap(mine, Part::waiting);
  }
  const Clock::time_point asked = due_ = waits_since_ = Clock::now();
  if (!admission_.await(
          action.sample, [&] { return patience(); }, [&] { end_group(); }))
    return false;
  lap(mine, Part::waiting);
  admission_.take(action.sample, asked);
  pass_on(*shared_.lowering(index_, action).gives.find(Signal::Kind::admission));
  lap(mine, Part::handoff);
  return true;
}

template <class Came>
bool Worker::look_for(std::int64_t sample, const Came& came) {
  return await(sample, [&](std::chrono::microseconds patience) {
    if (came()) return true;
    if (patience.count() > 0) std::this_thread::sleep_for(patience);
    return false;
  });
}

bool Worker::await_sample(const Action& action) {
  Stage& mine = stage(action);
  const auto came = [&] { return shared_.ranks->has_sample(action.sample); };
  if (!came()) {
    lap(mine, Part::handoff);
    if (!look_for(action.sample, came)) return false;
    lap(mine, Part::waiting);
  }
  return true;
}

bool Worker::await_target(const Action& action) {
  const bool takes_loss = shared_.lowering.last(action.stage) || options_.own_losses;
  if (action.op != Op::forward || !takes_loss) return true;
  return look_for(action.sample, [&] { return shared_.ranks->has_target(action.sample); });
}

bool Worker::compare(const Action& action, bool& told) {
  const bool last = shared_.lowering.last(action.stage);
  if (!options_.late_targets || !(last || options_.own_losses)) return true;
  Stage& mine = stage(action);
  const int slot = this->slot(action.sample);
  for (Feed::Status status = Feed::Status::wait; status == Feed::Status::wait;) {
    status = shared_.feed.target(shared_.in_flight(action.sample), patience());
    told = status == Feed::Status::ready;
    if (status == Feed::Status::wait) end_group();  // predictions do not wait for targets
    if (over(action.sample)) return false;
  }
  lap(mine, Part::waiting);
  if (told) mine.step->compare(slot);
  if (!last) return true;
  info(action.sample).has_target = told;
  completions_.push({.kind = Completion::Kind::compared, .action = action});
  if (!mine.step->defers()) end_group();  // the guard is to judge it before its gradient is taken
  return true;
}

void Worker::take_gradient(const Action& action, const Token& token, bool told) {
  Stage& mine = stage(action);
  const bool last = shared_.lowering.last(action.stage);
  mine.origin = options_.own_losses ? action.sample : token.origin;
  mine.learns = last || options_.own_losses ? info(action.sample).learns && told : token.learns;
  mine.learned_in[slot(action.sample)] = mine.learns;
  // What the guard said is known by then, and known at the same sample in every run.
  const std::int64_t judged = action.sample - (mine.step->defers() ? shared_.schedule.slots() : 0);
  mine.alarm = !last        ? token.alarm
               : judged < 0 ? Alarm::none
                            : verdicts_[std::size_t(judged) % verdicts_.size()];
  mine.pending = std::max(mine.pending, mine.alarm);
}

}  // namespace millrace::engine
