#include "tools/page/server.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <thread>
#include <utility>  // Asio 1.74 uses it without including it

#include <pthread.h>
#include <sys/resource.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>

#include "tools/page/site.h"

namespace millrace::page {
namespace {

namespace net = boost::asio;
using net::ip::tcp;

constexpr int kSendBuffer = 64 << 10;  // bytes queued in the kernel for a viewer that does not read
constexpr int kNiceness = 10;          // training comes first

tcp::acceptor listen(net::io_context& context, const WebOptions& options) {
  try {
    return {context, {net::ip::make_address(options.address), options.port}};
  } catch (const boost::system::system_error& error) {
    throw std::runtime_error(options.address + ":" + std::to_string(options.port) + ": " +
                             error.code().message());
  }
}

struct Server final : WebServer {
  Server(const WebOptions& web_options, WebSubject subject)
      : options(web_options),
        acceptor(listen(context, options)),
        site(context, Gate(options, port), std::move(subject)) {
    net::co_spawn(context, keep([this] { return site.publisher.run(); }), net::detached);
    net::co_spawn(context, keep([this] { return let_in(); }), net::detached);
    net::co_spawn(context, keep([this] { return watch_deadlines(); }), net::detached);
    thread = std::thread([this] { run(); });
  }
  ~Server() override {
    net::post(context, [this] { stop(); });
    thread.join();
  }

  std::string url() const override {
    const std::string& at = options.address;
    const std::string host = at.find(':') == std::string::npos ? at : "[" + at + "]";
    return "http://" + host + ":" + std::to_string(port) + "/";
  }

  void run() {
    pthread_setname_np(pthread_self(), "millrace-web");
    setpriority(PRIO_PROCESS, 0, kNiceness);  // on Linux: this thread
    context.run();                            // until stop() and the last connection's end
  }

  void stop() {
    site.publisher.stop();
    acceptor.close();
    clock.cancel();
    for (Line& line : site.lines) line.hang_up();
  }

  /// Restarts `work` if it throws, for instance when memory is short: the page must not freeze.
  net::awaitable<void> keep(std::function<net::awaitable<void>()> work) {
    while (!site.publisher.stopped()) {
      try {
        co_await work();
      } catch (const std::exception&) {
      }
      net::steady_timer pause(context, std::chrono::milliseconds(100));
      if (!site.publisher.stopped()) co_await wait(pause);
    }
  }

  net::awaitable<void> let_in() {
    while (!site.publisher.stopped()) {
      // throws when descriptors run out, for instance; keep() then waits
      tcp::socket socket = co_await acceptor.async_accept(net::use_awaitable);
      if (!make_room()) continue;  // hangs up
      boost::system::error_code ignored;
      socket.set_option(net::socket_base::send_buffer_size(kSendBuffer), ignored);
      socket.set_option(tcp::no_delay(true), ignored);
      net::co_spawn(context, serve(site, std::move(socket)), net::detached);
    }
  }

  /// Whether one more connection fits. If not, closes the oldest that has yet to send its request,
  /// or else the oldest that is slow to take its answer, so neither can shut others out.
  bool make_room() {
    if (std::ranges::count(site.lines, false, &Line::hung_up) < Site::most_lines()) return true;
    for (const Doing doing : {Doing::asks, Doing::is_answered}) {
      const auto oldest = std::ranges::find_if(
          site.lines, [&](const Line& line) { return line.doing == doing && !line.hung_up; });
      if (oldest == site.lines.end()) continue;
      oldest->hung_up = true;
      oldest->hang_up();
      return true;
    }
    return false;
  }

  net::awaitable<void> watch_deadlines() {
    while (!site.publisher.stopped()) {
      clock.expires_after(std::chrono::seconds(1));
      co_await wait(clock);
      const Clock::time_point now = Clock::now();
      for (Line& line : site.lines)
        if (now > line.deadline) line.hang_up();
    }
  }

  const WebOptions options;
  net::io_context context{1};
  tcp::acceptor acceptor;
  const std::uint16_t port = acceptor.local_endpoint().port();
  Site site;
  net::steady_timer clock{context};
  std::thread thread;
};

}  // namespace

std::unique_ptr<WebServer> start_server(const WebOptions& options, WebSubject subject) {
  return std::make_unique<Server>(options, std::move(subject));
}

}  // namespace millrace::page
