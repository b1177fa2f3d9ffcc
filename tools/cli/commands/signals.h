// SIGINT, SIGTERM, SIGUSR1, SIGUSR2 and SIGALRM stop: the first asks for an orderly end, the second
// ends the process. SIGHUP requests a reload of the config.
#pragma once

namespace millrace::cli {

/// From now on a stop ends the process at once with 0, as there is nothing to save. A SIGHUP is
/// kept for asked_to_reload().
void leave_at_signals();
/// From now on the first stop sets asked_to_stop().
void catch_signals();
/// Whether a stop has come since catch_signals().
bool asked_to_stop();
/// Whether SIGHUP has arrived since the last call. A SIGHUP from a closed terminal requests a stop
/// instead. One thread.
bool asked_to_reload();

}  // namespace millrace::cli
