#pragma once

#include <memory>
#include <vector>

#include "capture/program/program.h"
#include "stages/stage.h"

namespace millrace::program {

/// Records `body`, a call of `stage`, whose gradients stay unchanged. What the body writes outside
/// holds results once the program has run. Throws as Program() does.
std::unique_ptr<Program> record_call(stages::Stage& stage, const std::function<void()>& body,
                                     Arena& arena, const ProgramOptions& options = {});

using Programs = std::vector<std::unique_ptr<Program>>;
/// The operations of a step's programs, timed over up to `rounds` runs on arbitrary numbers, which
/// ruins weights and state. On a GPU each runs many times in a graph of its own.
std::vector<capture::OperationInfo> timed(const Programs& step, c10::Device device, int rounds);

}  // namespace millrace::program
