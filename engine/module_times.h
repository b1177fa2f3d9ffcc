// How long each module of a network takes, measured where it will run.
#pragma once

#include <vector>  // one a module

#include "stages/network.h"
#include "stages/optimizer.h"

namespace millrace::engine {

/// Median milliseconds of one module's part in a step.
struct ModuleTime {
  double forward = 0;
  double backward = 0;
  double update = 0;
  double total() const { return forward + backward + update; }
};

/// Times forward, backward and update of every module on one CPU core, warm, each module on the
/// activations that reach it from a sample of shape `input`. The first module needs no input
/// gradient and is timed so. Takes `repeats` passes over the network.
std::vector<ModuleTime> measure_modules(const std::shared_ptr<const stages::Network>& network,
                                        const stages::ImageShape& input,
                                        const stages::OptimizerSpec& optimizer, int repeats = 9);

}  // namespace millrace::engine
