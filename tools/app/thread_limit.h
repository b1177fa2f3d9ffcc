// Whether this process may start the threads that a run needs.
#pragma once

#include "tools/app/config/config.h"

namespace millrace::app {

/// Starts about as many threads as a run of `config` needs, and ends them. Throws
/// std::runtime_error if the system refuses one: libraries that are refused one later abort or wait
/// for ever.
void require_threads(const Config& config);

}  // namespace millrace::app
