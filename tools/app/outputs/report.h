// What a run leaves: report.json.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/monitor/clock.h"
#include "stages/safetensors.h"

namespace millrace::engine {
class Trainer;
}

namespace millrace::app {

struct Learner;
struct Progress;
struct Request;
struct RunParts;

/// The report of a run that has learned, as docs/report.md explains it key by key.
nlohmann::ordered_json make_report(RunParts& run);

/// Its parts by stage: where each runs, and how its step ran.
nlohmann::ordered_json devices_json(const engine::Trainer& trainer);
nlohmann::ordered_json steps_json(const engine::Trainer& trainer);

/// What weights say of the run that made them, `samples` after its start: version, config, seed,
/// uri, host, duration, rate, and frames with those of the checkpoint that it continues. Any thread,
/// once learning has begun.
struct About {
  const Request& request;
  const Learner& learner;
  const Progress& progress;
};
stages::Metadata about_weights(const About& run, std::int64_t samples,
                               engine::Clock::time_point now);

}  // namespace millrace::app
