#include <sys/socket.h>
#include <unistd.h>

#include "tests/fuzz/target.h"
#include "tools/page/crowd.h"

namespace {

/// Takes what was answered; false: nothing was.
bool take_answers(int viewer) {
  char answer[64 << 10];
  bool some = false;
  while (recv(viewer, answer, sizeof answer, 0) > 0) some = true;
  return some;
}

}  // namespace

/// Requests, and WebSocket frames behind one that upgrades: the bytes of a connection. It is served
/// on this thread, without a listening socket and without waiting.
MILLRACE_FUZZ(http) {
  using namespace millrace::page;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  (void)!send(ends[1], text.data(), text.size(), MSG_NOSIGNAL);
  shutdown(ends[1], SHUT_WR);

  static const Gate gate(web_options("127.0.0.1:0", ""), 80);
  Controls controls({});
  const WebSubject subject{.look = [] { return Snapshot{}; }, .controls = &controls};
  Crowd crowd(gate, subject);
  crowd.admit(ends[0]);
  bool more = true;
  while (more) {
    const bool served = crowd.turn({}, std::chrono::milliseconds(0));
    more = take_answers(ends[1]) || served;
  }
  close(ends[1]);
}
