// SIGINT, SIGTERM, SIGUSR1, SIGUSR2 and SIGALRM: the first requests an orderly end, one that comes
// more than half a second later ends the process. SIGHUP requests a reload of the config.
#pragma once

namespace millrace::cli {

/// From now on a stop signal ends the process at once with 0, since there is nothing to save. A
/// SIGHUP waits for asked_to_reload().
void leave_at_signals();
/// From now on the first stop signal sets asked_to_stop().
void catch_signals();
/// Whether a stop signal has arrived since catch_signals().
bool asked_to_stop();
/// Whether SIGHUP has arrived since the last call. A SIGHUP from a closed terminal requests a stop
/// instead. One thread.
bool asked_to_reload();

}  // namespace millrace::cli
