// The user's own code among those that see predictions.
#pragma once

#include <memory>
#include <vector>

#include "engine/trainer/trainer.h"
#include "tools/app/plugins/plugin.h"
#include "tools/app/run.h"

namespace millrace::app {

/// Shows each prediction to `see`, if it is set before the run, and to the sinks of plug-ins. The
/// trainer outlives it.
class Callback final : public engine::Observer {
 public:
  /// `inputs`: numbers of a sample's input.
  Callback(engine::Trainer& trainer, std::size_t inputs) : trainer_(trainer), inputs_(inputs) {}
  std::function<void(const Prediction&)> see;
  std::vector<std::unique_ptr<Sink>> sinks;

  void predicted(const engine::SampleInfo& info, int slot, float loss) override {
    if (!see && sinks.empty()) return;
    const std::size_t targets = trainer_.target_elements();
    const std::chrono::duration<double, std::milli> latency = info.predicted - info.captured;
    const Prediction prediction{
        .index = info.sample,
        .frame = info.frame,
        .loss = loss,
        .latency_ms = latency.count(),
        .input = {trainer_.shown_input(slot), inputs_},
        .target = {trainer_.shown_target(slot), info.has_target ? targets : 0},
        .prediction = {trainer_.prediction(slot), targets}};
    if (see) see(prediction);
    for (const auto& sink : sinks) sink->see(prediction);
  }

 private:
  engine::Trainer& trainer_;
  const std::size_t inputs_;
};

}  // namespace millrace::app
