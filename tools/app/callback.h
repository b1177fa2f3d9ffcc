// The user's own code among those that see predictions.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/pipeline/feed.h"
#include "tools/app/plugins/plugin.h"
#include "tools/app/run.h"

namespace millrace::app {

/// Shows each prediction to `see`, if it is set before the run, and to the sinks of plug-ins.
class Callback final : public engine::Observer {
 public:
  std::function<void(const Prediction&)> see;
  std::vector<std::unique_ptr<Sink>> sinks;

  void predicted(engine::Sample& sample, float loss) override {
    if (!see && sinks.empty()) return;
    const engine::SampleInfo& info = sample.info;
    const std::chrono::duration<double, std::milli> latency = info.predicted - info.captured;
    const Prediction prediction{
        .index = info.index,
        .frame = info.frame,
        .loss = loss,
        .latency_ms = latency.count(),
        .input = sample.shown_input(),
        .target = info.has_target ? sample.shown_target() : std::span<const float>(),
        .prediction = sample.prediction()};
    if (see) see(prediction);
    for (const auto& sink : sinks) sink->see(prediction);
  }
};

}  // namespace millrace::app
