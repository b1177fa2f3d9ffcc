// The ranks that a launcher such as mpirun has started for one run. One other than 0 runs its share
// of the workers, without report or page.
#pragma once

#include <functional>
#include <memory>

#include "engine/pipeline/exchange.h"
#include "tools/app/config/config.h"

namespace millrace::app {

/// Null if this process was started alone; then MPI is not even loaded. Call it once per process.
/// Ranks may end only when all have destroyed their Exchange. Throws ConfigError if several
/// processes were started and this build has no MPI.
std::unique_ptr<engine::Exchange> launched_ranks();

/// Learns as part of rank 0's run and returns the exit code. `read` returns the config, which must
/// equal rank 0's; it may throw ConfigError. `asked_to_stop` is called about 20 times a second; if
/// true, rank 0 drains all ranks. Throws std::runtime_error if the run fails. Errors before the run
/// are reported by rank 0.
int follow(engine::Exchange& exchange, const std::function<Config()>& read,
           const std::function<bool()>& asked_to_stop);

/// On rank 0: tells ranks that wait for the run to exit with `code`.
void refuse_ranks(engine::Exchange& exchange, int code);

}  // namespace millrace::app
