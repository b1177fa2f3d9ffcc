// SIGINT and SIGTERM: the first asks for an orderly end, the second ends at once. SIGHUP asks to
// read the config again.
#pragma once

namespace millrace::cli {

/// From now on SIGINT and SIGTERM end the process with 0 at once, since there is nothing to save
/// yet. A SIGHUP is kept for asked_to_reload().
void leave_at_signals();
/// From now on the first SIGINT or SIGTERM sets asked_to_stop().
void catch_signals();
/// Whether SIGINT or SIGTERM has come since catch_signals().
bool asked_to_stop();
/// Whether SIGHUP has come since the last call. A SIGHUP from closing the process's terminal asks
/// to stop instead. One thread.
bool asked_to_reload();

}  // namespace millrace::cli
