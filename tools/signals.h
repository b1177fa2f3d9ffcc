// SIGINT and SIGTERM: the first asks for an orderly end, the second ends at once.
#pragma once

namespace millrace::tools {

void catch_signals();
/// Whether SIGINT or SIGTERM has come since catch_signals().
bool asked_to_stop();

}  // namespace millrace::tools
