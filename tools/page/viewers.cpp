// Those who stay to watch. A page says when it has taken something in and is sent what is latest
// then, so that nothing piles up for one that is slow, and one that is stuck costs nothing.
#include <algorithm>  // min
#include <utility>    // Asio 1.74 takes it for granted

#include <boost/asio/co_spawn.hpp>           // reading beside writing
#include <boost/asio/detached.hpp>           // likewise
#include <boost/asio/redirect_error.hpp>     // errors as values
#include <boost/asio/steady_timer.hpp>       // waits for a viewer
#include <boost/asio/use_awaitable.hpp>      // coroutines
#include <boost/asio/write.hpp>              // parts
#include <boost/beast/websocket/stream.hpp>  // WebSocket

#include "tools/page/site.h"

namespace millrace::page {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace websocket = beast::websocket;

constexpr std::chrono::seconds kViewerPatience{10};  // for taking one state or picture
constexpr std::chrono::seconds kSilence{2};          // then the same again: somebody may have left
constexpr int kUnderWay = 2;  // messages not taken in yet: one travels while one is looked at

/// A WebSocket that one coroutine reads and one writes.
struct Socket {
  explicit Socket(beast::tcp_stream stream) : ws(std::move(stream)), wake(ws.get_executor()) {
    wake.expires_at(net::steady_timer::time_point::max());
  }
  websocket::stream<beast::tcp_stream> ws;
  net::steady_timer wake;
  int room = kUnderWay;  ///< messages that may be sent
  bool gone = false;     ///< the reader has seen the end
};

/// Whatever a viewer says means that it has taken a message in.
net::awaitable<void> read_to_end(std::shared_ptr<Socket> socket) {
  beast::flat_buffer buffer;
  boost::system::error_code error;
  while (!error) {
    co_await socket->ws.async_read(buffer, net::redirect_error(net::use_awaitable, error));
    buffer.clear();
    socket->room = std::min(socket->room + 1, kUnderWay);
    socket->gone = bool(error);
    socket->wake.cancel();
  }
}

/// Returns when there is room for a message, or its time is up.
net::awaitable<void> room(Socket& socket, Line& line) {
  line.deadline = Clock::now() + kViewerPatience;
  while (socket.room == 0 && !socket.gone) {
    boost::system::error_code woken;
    co_await socket.wake.async_wait(net::redirect_error(net::use_awaitable, woken));
  }
  line.deadline = Clock::time_point::max();
}

net::awaitable<bool> accept(Socket& socket, const Request& request) {
  auto limits = websocket::stream_base::timeout::suggested(beast::role_type::server);
  limits.handshake_timeout = kViewerPatience;
  limits.idle_timeout = 2 * kViewerPatience;  // pinged at half of it
  limits.keep_alive_pings = true;
  beast::get_lowest_layer(socket.ws).expires_never();  // the WebSocket has clocks of its own
  socket.ws.set_option(limits);
  socket.ws.read_message_max(1024);
  socket.ws.auto_fragment(false);
  boost::system::error_code error;
  co_await socket.ws.async_accept(request, net::redirect_error(net::use_awaitable, error));
  co_return !error;
}

net::awaitable<bool> send(Socket& socket, Line& line, Bytes message, bool text) {
  --socket.room;
  socket.ws.text(text);
  line.deadline = Clock::now() + kViewerPatience;
  boost::system::error_code error;
  co_await socket.ws.async_write(net::buffer(*message),
                                 net::redirect_error(net::use_awaitable, error));
  line.deadline = Clock::time_point::max();
  co_return !error;
}

}  // namespace

net::awaitable<void> watch_live(Site& site, beast::tcp_stream stream, Line& line, Request request) {
  const auto socket = std::make_shared<Socket>(std::move(stream));
  line.hang_up = [socket] { beast::get_lowest_layer(socket->ws).close(); };
  const bool accepted = co_await accept(*socket, request);
  if (!accepted) co_return;
  net::co_spawn(socket->ws.get_executor(), read_to_end(socket), net::detached);
  std::uint64_t state_seen = 0, pictures_seen = 0;
  for (bool good = true; good && !site.publisher.stopped();) {
    co_await room(*socket, line);
    if (socket->gone) break;
    std::uint64_t version;
    const Bytes state = site.publisher.state(version);
    if (version != state_seen) {
      state_seen = version;
      good = co_await send(*socket, line, state, true);
    } else if (PictureSet* const set = site.publisher.pictures(version);
               set && version != pictures_seen) {
      pictures_seen = version;
      good = co_await send(*socket, line, set->message(), false);
    } else {
      co_await site.publisher.changed();
    }
  }
  beast::get_lowest_layer(socket->ws).close();  // ends the reader, too
}

net::awaitable<void> watch_picture(Site& site, beast::tcp_stream& stream, std::size_t index) {
  boost::system::error_code error;
  const auto write = [&](const auto& buffers) {
    stream.expires_after(kViewerPatience);
    return net::async_write(stream, buffers, net::redirect_error(net::use_awaitable, error));
  };
  const std::string head =
      "HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=frame\r\n"
      "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
      "Cross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n\r\n--frame\r\n";
  co_await write(net::buffer(head));
  std::uint64_t seen = 0, version = 0;
  Clock::time_point sent;
  while (!error && !site.publisher.stopped()) {
    PictureSet* const set = site.publisher.pictures(version);
    if (!set || (version == seen && Clock::now() - sent < kSilence)) {
      co_await site.publisher.changed();
      continue;
    }
    seen = version;
    sent = Clock::now();
    const Bytes file = set->jpeg(index);
    const std::string before =
        "Content-Type: image/jpeg\r\nContent-Length: " + std::to_string(file->size()) + "\r\n\r\n";
    const std::string after = "\r\n--frame\r\n";  // at once: a browser shows a part when it ends
    const std::array<net::const_buffer, 3> part = {net::buffer(before), net::buffer(*file),
                                                   net::buffer(after)};
    co_await write(part);
  }
}

}  // namespace millrace::page
