// What a run leaves when it has learned: its report, and pictures.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

#include "engine/monitor/clock.h"
#include "stages/model_spec.h"
#include "stages/safetensors.h"

namespace millrace::engine {
struct FrameCounts;
class Trainer;
}  // namespace millrace::engine

namespace millrace::app {

struct RunParts;
class RunLog;

/// The report of a run; docs/report.md explains each key. Called by learn()'s thread, or when that
/// has ended.
nlohmann::ordered_json make_report(RunParts& run);
/// What viewers see of the run itself, of which the page makes /state. Any thread.
nlohmann::ordered_json live_report(RunParts& run);
/// How often the guard rolled back, in a line; "": never.
std::string guard_remark(const engine::Trainer& trainer);
/// make_report()'s report in a few lines, for people; the last one is the verdict.
std::string summarize(const nlohmann::ordered_json& report);

/// Draws the loss curve beside the mean frame's. Throws std::runtime_error.
void draw_loss(const RunLog& log, const std::string& path);
/// Draws input, target, prediction, mean frame and error of the last frame. Throws
/// std::runtime_error.
void draw_prediction(const RunLog& log, const stages::ImageShape& shape, const std::string& path);

/// What weights say of the run that made them, `samples` after its start: version, config, seed,
/// uri, host, duration, rate, and frames including those before the checkpoint it continues. Any
/// thread, once learning has begun.
stages::Metadata about_weights(const RunParts& run, std::int64_t samples,
                               engine::Clock::time_point now);

/// "frames" of a report.
nlohmann::ordered_json frames_json(const engine::FrameCounts& frames);

}  // namespace millrace::app
