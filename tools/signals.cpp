#include "tools/signals.h"

#include <csignal>  // sigaction

namespace millrace::tools {
namespace {

volatile std::sig_atomic_t asked = 0;

void on_signal(int) {
  asked = 1;
  // A second signal, whichever of the two, does what it always did.
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

}  // namespace

void catch_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // whoever reads stdout may go away; the weights stay
}

bool asked_to_stop() {
  return asked != 0;
}

}  // namespace millrace::tools
