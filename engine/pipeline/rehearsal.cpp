#include "engine/pipeline/rehearsal.h"

#include <stdexcept>  // std::logic_error

namespace millrace::engine {
namespace {

void call(capture::Step& step, const Action& action, int slots) {
  const int slot = int(action.sample % slots), gradient = int(action.gradient % slots);
  switch (action.op) {
    case Op::forward:
      return step.forward(slot, action.version);
    case Op::recompute:
      return step.recompute(slot);
    case Op::backward:
      return step.backward(slot, gradient);
    case Op::backward_input:
      return step.backward_input(slot, gradient);
    case Op::backward_weight:
      return step.backward_weight(slot);
    case Op::update:
      return step.update();
  }
}

}  // namespace

void rehearse(const Schedule& schedule, const Turns& turns,
              const std::vector<capture::Step*>& steps) {
  for (capture::Step* step : steps) {
    if (step->records()) step->begin_rehearsal();
  }
  const bool done = walk(
      schedule, turns, samples_to_rehearse(schedule),
      [&](int, const Action& action) {
        capture::Step& step = *steps[action.stage];
        if (step.records()) call(step, action, schedule.slots());
      },
      [&](int worker) {
        for (const int stage : stages_of(schedule.workers[worker])) steps[stage]->launch();
      });
  if (!done) throw std::logic_error("schedule " + schedule.name + " deadlocks in its turns");
  for (capture::Step* step : steps) {
    if (step->records()) step->end_rehearsal();
  }
}

}  // namespace millrace::engine
