#include "engine/schedule/verifier_traffic.h"

namespace millrace::engine {

std::deque<Traffic::Message>& Traffic::link(Links& links, int upper, std::int64_t sample) {
  const auto unit = [&](int stage) {
    return schedule_.unit(stage, schedule_.replica_of(stage, sample));
  };
  return links[{unit(upper), unit(upper + 1)}];
}

void Traffic::send(int worker, Links& links, int upper, std::int64_t sample) {
  link(links, upper, sample).push_back({sample, order_.now(worker)});
}

bool Traffic::receive(int worker, Links& links, int upper, std::int64_t sample) {
  std::deque<Message>& from = link(links, upper, sample);
  if (from.empty()) return false;
  if (from.front().sample != sample)
    throw Wrong{"receives what belongs to sample " + std::to_string(from.front().sample)};
  order_.learn(worker, from.front().knowledge);
  from.pop_front();
  return true;
}

bool Traffic::admit(int worker, std::int64_t sample) {
  const std::int64_t before = sample - schedule_.in_flight;
  if (before >= 0) {
    const std::vector<Knowledge>& left = released_[before];
    if (int(left.size()) < schedule_.stages) return false;
    for (const Knowledge& knowledge : left) order_.learn(worker, knowledge);
  }
  write(worker, inputs_, 0, sample);
  return true;
}

void Traffic::take_turn(int worker, int stage) {
  std::vector<Knowledge>& turns = turns_[stage];
  if (!turns.empty()) order_.learn(worker, turns.back());
  turns.push_back(order_.now(worker));
}

bool Traffic::meet(int worker, int stage, std::int64_t update) {
  const std::vector<Knowledge>& posts = posts_[{stage, update}];
  if (int(posts.size()) < schedule_.replicas_of(stage)) return false;
  for (const Knowledge& knowledge : posts) order_.learn(worker, knowledge);
  for (int replica = 0; replica < schedule_.replicas_of(stage); ++replica) {
    if (sums_.read(worker, schedule_.unit(stage, replica), update % 2, update))
      throw Wrong{"another replica's gradient was overwritten"};
  }
  return true;
}

void Traffic::read(int worker, Slots& slots, int owner, std::int64_t sample) {
  if (const auto other = slots.read(worker, owner, sample % schedule_.slots(), sample))
    throw Wrong{"its slot was overwritten by sample " + std::to_string(*other)};
}

void Traffic::read_inputs(int worker, int stage, std::int64_t sample) {
  if (stage > 0) read(worker, activations_, stage - 1, sample);
  if (stage == 0 || stage + 1 == schedule_.stages) read_sample(worker, sample);
}

void Traffic::write(int worker, Slots& slots, int owner, std::int64_t sample) {
  if (const auto reader = slots.write(worker, owner, sample % schedule_.slots(), sample))
    throw Wrong{"may overwrite what worker " + std::to_string(*reader) + " still reads"};
}

void Traffic::write_sum(int worker, int unit, std::int64_t update) {
  if (sums_.write(worker, unit, update % 2, update))
    throw Wrong{"may overwrite a gradient that another replica still reads"};
}

}  // namespace millrace::engine
