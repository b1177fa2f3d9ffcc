// The pictures a run leaves.
#pragma once

#include <string>  // paths

#include "stages/model_spec.h"
#include "tools/app/outputs/run_log.h"

namespace millrace::app {

/// The loss curve beside the mean frame's. Throws std::runtime_error.
void draw_loss(const RunLog& log, const std::string& path);

/// Input, target, prediction, mean frame and where the prediction errs, of the last frame.
void draw_prediction(const RunLog& log, const stages::ImageShape& shape, const std::string& path);

}  // namespace millrace::app
