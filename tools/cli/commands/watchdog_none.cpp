#include "tools/cli/commands/watchdog.h"

namespace millrace::cli {

Watchdog::Watchdog() : listened_to_(false), period_(0) {}
void Watchdog::ready() {}
void Watchdog::trained(std::int64_t, const std::string&, Clock::time_point) {}
void Watchdog::paused(const std::string&, Clock::time_point) {}
void Watchdog::stopping() {}

}  // namespace millrace::cli
