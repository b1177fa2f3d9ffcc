// The processes that a launcher such as mpirun has started for one run.
#pragma once

#include <memory>

#include "engine/pipeline/exchange.h"

namespace millrace::app {

/// Null where this process was started alone; MPI is not even loaded then. Once a process: when the
/// last of all ranks lets go of it, they may end. Throws ConfigError where several were started and
/// this build can't have them talk.
std::unique_ptr<engine::Exchange> launched_ranks();

}  // namespace millrace::app
