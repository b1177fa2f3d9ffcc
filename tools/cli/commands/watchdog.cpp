#include "tools/cli/commands/watchdog.h"

#include <systemd/sd-daemon.h>

#include <cstdlib>

namespace millrace::cli {
namespace {

constexpr std::chrono::microseconds kUnasked{1'000'000};  // without WatchdogSec=, for the status

/// systemd reads one assignment per line: foreign text must not add any.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

}  // namespace

Watchdog::Watchdog() : listened_to_(std::getenv("NOTIFY_SOCKET") != nullptr), period_(kUnasked) {
  std::uint64_t allowed = 0;
  if (sd_watchdog_enabled(0, &allowed) > 0) period_ = std::chrono::microseconds(allowed / 4);
}

void Watchdog::ready() {
  sd_notify(0, "READY=1\nSTATUS=waiting for the first frame");
}

void Watchdog::paused(const std::string& status, Clock::time_point now) {
  if (listened_to_ && now >= next_) speak(status, now);
}

void Watchdog::trained(std::int64_t frames, const std::string& status, Clock::time_point now) {
  if (!due(frames, now)) return;
  told_ = frames;
  speak(status, now);
}

void Watchdog::speak(const std::string& status, Clock::time_point now) {
  next_ = now + period_;
  sd_notify(0, ("WATCHDOG=1\nSTATUS=" + one_line(status)).c_str());
}

void Watchdog::stopping() {
  sd_notify(0, "STOPPING=1\nSTATUS=draining the pipeline and saving");
}

}  // namespace millrace::cli
