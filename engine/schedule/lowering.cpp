#include "engine/schedule/lowering.h"

#include <algorithm>

namespace millrace::engine {

Lowering::Lowering(const Schedule& schedule)
    : schedule_(schedule),
      replicas_(schedule.replica_counts()),
      worker_(workers_of_replicas(schedule)),
      first_backward_(first_backwards(schedule)),
      needs_(stage_needs(schedule)) {
  for (int stage = 0; stage < schedule.stages; ++stage) {
    first_replica_.push_back(int(stage_.size()));
    stage_.insert(stage_.end(), std::size_t(replicas(stage)), stage);
  }
}

Lowered Lowering::operator()(int worker, const Action& action) const {
  using Kind = Signal::Kind;
  const int stage = action.stage;
  const std::int64_t sample = action.sample;
  Lowered lowered{.action = action,
                  .replica_id = replica_id(stage, schedule_.workers[std::size_t(worker)].replica)};
  const auto need = [&](Kind kind, int of_stage, std::int64_t of_sample) {
    lowered.needs.add({kind, of_stage, of_sample,
                       replica_with(of_stage, std::max<std::int64_t>(0, of_sample)),
                       lowered.replica_id});
  };
  const auto give = [&](Kind kind, int to) {
    lowered.gives.add({kind, stage, sample, lowered.replica_id, to});
  };
  // Replicas take samples in order, each after the replica with the sample before.
  const auto in_order = [&](Kind kind) {
    if (replicas(stage) > 1 && sample > 0) need(kind, stage, sample - 1);
    give(kind, replica_with(stage, sample + 1));
  };
  if (action.op == Op::forward) {
    if (stage == 0) {
      in_order(Kind::admission);
      need(Kind::release, 0, sample - schedule_.slots());
    } else {
      need(Kind::activation, stage - 1, sample);
    }
    if (last(stage)) {
      in_order(Kind::prediction);
    } else {
      give(Kind::activation, replica_with(stage + 1, sample));
    }
  }
  if (takes_gradient(action.op)) {
    if (!last(stage)) need(Kind::gradient, stage + 1, action.gradient);
    if (stage > 0) give(Kind::gradient, replica_with(stage - 1, sample));
  }
  const bool goes_no_further = action.op == Op::forward && sample < first_backward(stage);
  if (adds_gradient(action.op) || goes_no_further) give(Kind::release, -1);
  if (action.op == Op::update && replicas(stage) > 1)
    lowered.needs.add({Kind::meeting, stage, sample, lowered.replica_id, -1});
  return lowered;
}

}  // namespace millrace::engine
