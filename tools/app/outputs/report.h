#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

#include "engine/monitor/clock.h"
#include "stages/model_spec.h"
#include "stages/safetensors.h"
#include "tools/app/learner.h"

namespace millrace::app {

struct Records;
class RunLog;

/// docs/report.md explains the keys. Called by learn()'s thread, or after learn(). `team`: the
/// other ranks, or null.
nlohmann::ordered_json make_report(const Request& request, const Progress& progress,
                                   const RankTeam* team, const Intake& intake, Learner& learner,
                                   const Records& records);
/// The run's part of the page's /state. Any thread.
nlohmann::ordered_json live_report(const Request& request, const Intake& intake, Learner& learner,
                                   const Records& records);
/// One line on the guard's roll-backs; "": none.
std::string guard_remark(const engine::Trainer& trainer);
/// The report in a few lines for people, ending with the verdict.
std::string summarize(const nlohmann::ordered_json& report);

/// Plots the loss and the mean frame's. Throws std::runtime_error.
void draw_loss(const RunLog& log, const std::string& path);
/// Draws the last input, target, prediction, mean frame and error. Throws std::runtime_error.
void draw_prediction(const RunLog& log, const stages::ImageShape& shape, const std::string& path);

/// Metadata of weights, `samples` after the start: version, config, seed, uri, host, duration,
/// rate, frames, including those before a checkpoint. Any thread, once learning has begun.
stages::Metadata about_weights(const Request& request, const Progress& progress,
                               const Learner& learner, std::int64_t samples,
                               engine::Clock::time_point now);

nlohmann::ordered_json frames_json(const engine::FrameCounts& frames);

}  // namespace millrace::app
