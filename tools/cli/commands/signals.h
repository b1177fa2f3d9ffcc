// SIGINT and SIGTERM: the first requests an orderly end, the second ends the process. SIGHUP
// requests a reload of the config.
#pragma once

namespace millrace::cli {

/// From now on SIGINT and SIGTERM end the process at once with 0, since there is nothing to save. A
/// SIGHUP is remembered for asked_to_reload().
void leave_at_signals();
void catch_signals();
/// Whether SIGINT or SIGTERM has arrived since catch_signals().
bool asked_to_stop();
/// Whether SIGHUP has arrived since the last call. A SIGHUP from a closed terminal requests a stop
/// instead. One thread.
bool asked_to_reload();

}  // namespace millrace::cli
