// What a server's connections share.
#pragma once

#include <algorithm>
#include <functional>
#include <list>
#include <utility>  // Asio 1.74 uses it without including it

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>

#include "io/network/dial.h"
#include "tools/page/gate.h"
#include "tools/page/publisher.h"
#include "tools/page/server.h"

namespace millrace::page {

using Request = boost::beast::http::request<boost::beast::http::string_body>;
using Response = boost::beast::http::response<boost::beast::http::string_body>;

/// What a connection is doing. Watchers get at most three quarters of the connections, and the
/// others make room for newcomers, so short requests such as /healthz always get through.
enum class Doing { asks, is_answered, watches };

struct Line {
  std::function<void()> hang_up;  ///< makes everything that waits on it fail
  Clock::time_point deadline = Clock::time_point::max();  ///< it is closed then
  Doing doing = Doing::asks;
  bool hung_up = false;  ///< about to close
};

/// One per server; server thread only.
struct Site {
  const Gate& gate;
  const WebSubject& subject;
  Publisher& publisher;
  std::list<Line> lines{};

  static int most_lines() { return io::connection_limit(256); }
  bool has_room_to_watch() const {
    const auto watch = [](const Line& line) { return line.doing == Doing::watches; };
    return std::count_if(lines.begin(), lines.end(), watch) < most_lines() * 3 / 4;
  }
};

/// Keeps the connection on the list while it lives, and counts it as a viewer once it watches.
class Enrolled {
 public:
  Enrolled(Site& site, std::function<void()> hang_up)
      : site_(site), at_(site.lines.insert(site.lines.end(), {std::move(hang_up)})) {}
  ~Enrolled() {
    if (at_->doing == Doing::watches) site_.publisher.went();
    site_.lines.erase(at_);
  }
  Enrolled(const Enrolled&) = delete;
  Enrolled& operator=(const Enrolled&) = delete;
  Line& line() { return *at_; }
  void watch() {
    at_->doing = Doing::watches;
    site_.publisher.came();
  }

 private:
  Site& site_;
  std::list<Line>::iterator at_;
};

/// Handles a connection from its first request to its end. Errors end it, silently.
boost::asio::awaitable<void> serve(Site& site, boost::asio::ip::tcp::socket socket);

/// The response to any request but /live and /picture, which stay open.
Response answer(Site& site, const Request& request);
Response crowded(const Request& request);
/// Whether this request may be answered. If not, `refusal` is the response.
bool admitted(const Site& site, const Request& request, Response& refusal);
/// "/state" of "/state?x=y".
std::string_view path_of(const Request& request);

}  // namespace millrace::page
