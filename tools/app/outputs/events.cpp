#include "tools/app/outputs/events.h"

#include <cmath>

#include "engine/format.h"

namespace millrace::app {

void Events::tell(const Tell& tell) {
  tell_of_roll_backs(tell);
  tell_of_the_source(tell);
  tell_of_novelty(tell);
  tell_of_dead_units(tell);
}

void Events::tell_of_dead_units(const Tell& tell) {
  constexpr int kMany = 4;  // a quarter of a stage's
  if (dead_told_) return;
  const std::vector<engine::DeadUnits> stages = trainer_.dead_units();
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const auto& [dead, units] = stages[stage];
    if (dead == 0 || kMany * dead < units) continue;
    dead_told_ = true;
    tell(
        engine::format("units: %d of %d of stage %zu are dead, their ReLU lets nothing through; "
                       "model.norm = \"instance\" or model.activation = \"leaky-relu\" keeps "
                       "them alive",
                       dead, units, stage));
    return;
  }
}

void Events::tell_of_novelty(const Tell& tell) {
  const std::int64_t begun = novelty_.events() - events_;  // first: an event counts before it is on
  const bool now = novelty_.in_event();
  if (begun == 0 && now == in_event_) return;
  if (begun > 1) tell("unexpected: " + std::to_string(begun) + " events");
  if (begun > 0) tell("unexpected: since frame " + std::to_string(novelty_.event_began()));
  if (!now) {
    tell(
        engine::format("usual again; the loss had been %.1f deviations up", novelty_.event_peak()));
  }
  events_ += begun;
  in_event_ = now;
}

void Events::tell_of_the_source(const Tell& tell) {
  const bool connected = health_.connected.load();
  if (connected == connected_) return;
  connected_ = connected;
  if (connected) {
    tell("source: back after " + std::to_string(health_.attempts.load()) + " attempts");
  } else {
    tell("source: away: " + health_.last_error() + "; the weights wait");
  }
}

void Events::tell_of_roll_backs(const Tell& tell) {
  if (guard_.roll_backs() == roll_backs_) return;
  roll_backs_ = guard_.roll_backs();
  tell(engine::format(
      "guard: at frame %lld the loss was %.4g (median %.4g): back to the last good "
      "weights, rate x %.3g",
      static_cast<long long>(guard_.last_sample()), guard_.last_loss(), guard_.last_median(),
      std::pow(engine::LossGuard::kSlower, double(roll_backs_))));
}

}  // namespace millrace::app
