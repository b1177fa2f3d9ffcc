#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <utility>  // Asio 1.74 takes it for granted

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include "tests/fuzz/target.h"
#include "tools/page/site.h"

namespace {

namespace net = boost::asio;

/// Takes what was answered; false: nothing was.
bool take_answers(int viewer) {
  char answer[64 << 10];
  bool some = false;
  while (recv(viewer, answer, sizeof answer, 0) > 0) some = true;
  return some;
}

}  // namespace

/// Requests, and WebSocket frames behind one that upgrades: the bytes of a connection. It is served
/// on this thread: neither a server nor its clock is waited for.
MILLRACE_FUZZ(http) {
  using namespace millrace::page;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  (void)!send(ends[1], text.data(), text.size(), MSG_NOSIGNAL);
  shutdown(ends[1], SHUT_WR);

  static const Gate gate(web_options("127.0.0.1:0", ""), 80);
  Controls controls({});
  const WebSubject subject{.look = [] { return Snapshot{}; }, .controls = &controls};
  net::io_context context{1};
  Publisher publisher(context, subject);
  Site site{gate, subject, publisher};
  net::co_spawn(context, serve(site, net::ip::tcp::socket(context, net::ip::tcp::v4(), ends[0])),
                [](std::exception_ptr thrown) {
                  if (thrown) std::rethrow_exception(thrown);  // none may be
                });
  bool more = true;
  while (more) {
    const bool worked = context.poll() > 0;
    more = take_answers(ends[1]) || worked;
  }
  publisher.stop();  // whoever stays to watch
  for (Line& line : site.lines) line.hang_up();
  context.run();
  close(ends[1]);
}
