#include "tools/signals.h"

#include <csignal>  // sigaction

namespace millrace::tools {
namespace {

volatile std::sig_atomic_t asked = 0;

void on_signal(int) {
  asked = 1;
}

}  // namespace

void catch_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  // The handler goes after its first call, so that a second signal does what it always did.
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool asked_to_stop() {
  return asked != 0;
}

}  // namespace millrace::tools
