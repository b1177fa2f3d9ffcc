// The processes that a launcher such as mpirun has started for one run.
#pragma once

#include <memory>

#include "engine/pipeline/exchange.h"

namespace millrace::app {

/// Null if this process was started alone; then MPI is not even loaded. Call it once per process.
/// Ranks may end only when all have destroyed their Exchange. Throws ConfigError if several
/// processes were started and this build has no MPI.
std::unique_ptr<engine::Exchange> launched_ranks();

}  // namespace millrace::app
