#include "tools/cli/commands/signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <ctime>

namespace millrace::cli {
namespace {

// timeout(1), sudo and others signal a process and its group: within this time that is one signal.
constexpr long long kOneSignal = 500'000'000;  // ns

volatile std::sig_atomic_t asked = 0;
std::atomic<long long> first_signal{0};  // ns of the monotonic clock; 0: none yet
volatile std::sig_atomic_t asked_anew = 0;

void on_stop(void (*handler)(int)) {
  // Batch systems announce the end by any of these. glibc restarts interrupted calls.
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM})
    std::signal(number, handler);
}

void on_early_signal(int) {
  _exit(0);
}

void on_signal(int number) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const long long at = now.tv_sec * 1'000'000'000LL + now.tv_nsec;
  long long first = 0;
  asked = 1;
  if (first_signal.compare_exchange_strong(first, at) || at - first < kOneSignal) return;
  std::signal(number, SIG_DFL);  // a second signal has its default effect
  std::raise(number);
}

void on_hangup(int) {
  asked_anew = 1;
}

bool has_terminal = false;  // may have been closed

bool terminal_is_there() {
  const int terminal = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (terminal >= 0) close(terminal);
  return terminal >= 0;
}

void hear_hangups() {
  const auto before = std::signal(SIGHUP, on_hangup);
  if (before == on_hangup) return;
  has_terminal = before != SIG_IGN && terminal_is_there();  // it is ignored under nohup
}

}  // namespace

void leave_at_signals() {
  hear_hangups();
  on_stop(on_early_signal);
}

void catch_signals() {
  hear_hangups();
  on_stop(on_signal);
  // A closed stdout or the file size limit (ulimit -f) must not lose the weights.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

bool asked_to_stop() {
  return asked != 0;
}

bool asked_to_reload() {
  if (asked_anew == 0) return false;
  asked_anew = 0;  // before the file is read, so that a signal meanwhile counts again
  if (!has_terminal || terminal_is_there()) return true;
  // The terminal was closed: a run that can no longer be controlled must release the camera.
  asked = 1;
  return false;
}

}  // namespace millrace::cli
