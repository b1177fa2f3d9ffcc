// SIGINT and SIGTERM: the first asks for an orderly end, the second ends at once. SIGHUP: the
// config is to be read again.
#pragma once

namespace millrace::tools {

void catch_signals();
/// Whether SIGINT or SIGTERM has come since catch_signals().
bool asked_to_stop();
/// Whether SIGHUP has come since the last call, unless it came since the terminal that the process
/// was started from is closed: that asks to stop. One thread.
bool asked_to_reload();

}  // namespace millrace::tools
