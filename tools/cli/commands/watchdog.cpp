#include "tools/cli/commands/watchdog.h"

#include <algorithm>
#include <cstdlib>

#ifdef MILLRACE_SYSTEMD
#include <systemd/sd-daemon.h>
#else
static int sd_notify(int, const char*) {
  return 0;
}
static int sd_watchdog_enabled(int, std::uint64_t*) {
  return 0;
}
#endif

namespace millrace::cli {

Watchdog::Watchdog() : listened_to_(std::getenv("NOTIFY_SOCKET") != nullptr) {
  std::uint64_t allowed = 0;
  if (sd_watchdog_enabled(0, &allowed) > 0) period_ = std::chrono::microseconds(allowed / 4);
}

void Watchdog::ready() {
  sd_notify(0, "READY=1\nSTATUS=waiting for the first frame");
}

void Watchdog::look(std::int64_t frames, bool paused, const std::function<std::string()>& status,
                    Clock::time_point now) {
  if (!listened_to_ || now < next_ || !(paused || frames > told_)) return;
  told_ = frames;
  next_ = now + period_;
  std::string line = status();
  std::replace(line.begin(), line.end(), '\n', ' ');  // a line break would begin an assignment
  sd_notify(0, ("WATCHDOG=1\nSTATUS=" + line).c_str());
}

void Watchdog::stopping() {
  sd_notify(0, "STOPPING=1\nSTATUS=draining the pipeline and saving");
}

}  // namespace millrace::cli
