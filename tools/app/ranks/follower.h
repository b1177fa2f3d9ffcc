// The ranks that a launcher such as mpirun started for one run. Ranks other than 0 run their share
// of the workers, without report or page.
#pragma once

#include <functional>
#include <memory>

#include "engine/pipeline/exchange.h"
#include "tools/app/config/config.h"

namespace millrace::app {

/// Null if this process was started alone; then MPI isn't even loaded. Call it once per process.
/// Ranks must not end before all have destroyed their Exchange. Throws ConfigError if several
/// processes were started and this build has no MPI.
std::unique_ptr<engine::Exchange> launched_ranks();

/// Learns as part of rank 0's run and returns the exit code. `read` returns the config, which must
/// equal rank 0's, or throws ConfigError. `asked_to_stop` is called about 20 times a second; on
/// true, rank 0 drains all ranks. Throws std::runtime_error if the run fails. Rank 0 reports errors
/// from before the run.
int follow(engine::Exchange& exchange, const std::function<Config()>& read,
           const std::function<bool()>& asked_to_stop);

/// On rank 0: makes ranks that wait for the run exit with `code`.
void refuse_ranks(engine::Exchange& exchange, int code);

}  // namespace millrace::app
