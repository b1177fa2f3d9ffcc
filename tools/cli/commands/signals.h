// SIGINT and SIGTERM: the first asks for an orderly end, the second ends at once. SIGHUP: the
// config is to be read again.
#pragma once

namespace millrace::cli {

/// From here on SIGINT and SIGTERM end the process with 0 at once: there is nothing to save yet. A
/// SIGHUP is kept for asked_to_reload().
void leave_at_signals();
/// From here on the first SIGINT or SIGTERM is asked_to_stop().
void catch_signals();
/// Whether SIGINT or SIGTERM has come since catch_signals().
bool asked_to_stop();
/// Whether SIGHUP has come since the last call, unless it came since the terminal that the process
/// was started from is closed: that asks to stop. One thread.
bool asked_to_reload();

}  // namespace millrace::cli
