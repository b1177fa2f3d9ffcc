// A rank beside rank 0: it has no source, report or page, and runs its share of the workers.
#pragma once

#include <functional>

#include "engine/pipeline/exchange.h"
#include "tools/app/config/config.h"

namespace millrace::app {

/// Learns as rank 0's run has it, and returns the exit code. `read` gives the config, which must be
/// rank 0's; it may throw ConfigError. `asked_to_stop` is asked some 20 times a second; rank 0 then
/// drains all. Throws std::runtime_error for a run that failed. What is wrong before it begins,
/// rank 0 says.
int follow(engine::Exchange& exchange, const std::function<Config()>& read,
           const std::function<bool()>& asked_to_stop);

/// On rank 0: tells those that wait for its run that there is none, so that they end with `code`.
void refuse_ranks(engine::Exchange& exchange, int code);

}  // namespace millrace::app
