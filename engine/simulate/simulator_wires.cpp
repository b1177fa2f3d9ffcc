#include "engine/simulate/simulator_wires.h"

namespace millrace::engine {

Wires::Wires(const Lowering& lowering, const SimulationInput& input) {
  std::map<std::pair<int, int>, int> links;
  const auto add = [&](int giver, int taker, double bytes) {
    const int from = lowering.worker(giver), to = lowering.worker(taker);
    Wire wire{.to = to};
    if (from != to) {
      wire.link = links.try_emplace({from, to}, int(links.size())).first->second;
      wire.ms = input.machine.link_between(from, to).ms(bytes);
    }
    wires_by_end_[{giver, taker}] = wires_.size();
    wires_.push_back(std::move(wire));
  };
  for (int stage = 0; stage + 1 < lowering.schedule().stages; ++stage) {
    const plan::StepBytes& bytes = input.stages[stage].bytes;
    for (int above = 0; above < lowering.replicas(stage); ++above) {
      for (int below = 0; below < lowering.replicas(stage + 1); ++below) {
        const int upper = lowering.replica_id(stage, above),
                  lower = lowering.replica_id(stage + 1, below);
        add(upper, lower, bytes.activation);
        add(lower, upper, bytes.gradient);
      }
    }
  }
  links_ = int(links.size());
}

}  // namespace millrace::engine
