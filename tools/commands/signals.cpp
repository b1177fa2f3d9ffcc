#include "tools/commands/signals.h"

#include <csignal>  // sigaction

namespace millrace::tools {
namespace {

volatile std::sig_atomic_t asked = 0;
volatile std::sig_atomic_t asked_anew = 0;

void on_signal(int) {
  asked = 1;
  // A second signal, whichever of the two, does what it always did.
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

void on_hangup(int) {
  asked_anew = 1;
}

}  // namespace

void catch_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // whoever reads stdout may go away; the weights stay
  action.sa_handler = on_hangup;
  sigaction(SIGHUP, &action, nullptr);
}

bool asked_to_stop() {
  return asked != 0;
}

bool asked_to_reload() {
  if (asked_anew == 0) return false;
  asked_anew = 0;  // before the file is read: a signal that comes meanwhile is another
  return true;
}

}  // namespace millrace::tools
