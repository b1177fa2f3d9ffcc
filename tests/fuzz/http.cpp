#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <netinet/in.h>

#include "tests/fuzz/target.h"
#include "tools/page/server.h"

namespace {

millrace::page::WebServer& server() {
  static millrace::page::Controls controls({});
  static millrace::page::WebServer one(millrace::page::web_options("127.0.0.1:0", ""),
                                     {.look = [] { return millrace::page::Snapshot{}; }, .controls = &controls});
  return one;
}

}  // namespace

/// Requests, and WebSocket frames behind one that upgrades: the bytes of a connection.
MILLRACE_FUZZ(http) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(server().port());
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int line = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(line, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0) {
    (void)!send(line, text.data(), text.size(), MSG_NOSIGNAL);
    shutdown(line, SHUT_WR);
    char answer[4096];
    pollfd more{.fd = line, .events = POLLIN, .revents = 0};
    while (poll(&more, 1, 50) > 0 && recv(line, answer, sizeof answer, 0) > 0) {
    }
  }
  close(line);
}
