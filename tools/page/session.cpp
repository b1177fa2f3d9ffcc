// A connection: requests one after another, until one stays to watch. A page acknowledges each
// message and then gets the latest, so nothing queues up for slow or stuck viewers.
#include <algorithm>
#include <array>
#include <utility>  // Asio 1.74 uses it without including it

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/websocket/stream.hpp>

#include "tools/page/site.h"

namespace millrace::page {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;

constexpr std::size_t kMostHeader = 8 << 10;
constexpr std::size_t kMostBody = 4 << 10;
constexpr std::chrono::seconds kPatience{10};  // to read a whole request, and to send
constexpr std::chrono::seconds kSilence{2};    // then resend: the viewer may have left
constexpr int kUnderWay = 2;  // unacknowledged messages: one travels while one is displayed

/// With an error the connection must be closed.
net::awaitable<boost::system::error_code> read_request(beast::tcp_stream& stream,
                                                       beast::flat_buffer& buffer,
                                                       Request& request) {
  http::request_parser<http::string_body> parser;
  parser.header_limit(kMostHeader);
  parser.body_limit(kMostBody);
  stream.expires_after(kPatience);  // for the whole request, however slowly it arrives
  boost::system::error_code error;
  co_await http::async_read(stream, buffer, parser, tells(error));
  if (!error) request = parser.release();
  co_return error;
}

/// Whether a request came, and is none.
bool is_malformed(const boost::system::error_code& error) {
  return error.category() == make_error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

net::awaitable<bool> say(beast::tcp_stream& stream, const Response& response) {
  stream.expires_after(kPatience);
  boost::system::error_code error;
  co_await http::async_write(stream, response, tells(error));
  co_return !error && response.keep_alive();
}

/// Reads on for a moment: a reset of the connection would overtake the answer.
net::awaitable<void> drain(beast::tcp_stream& stream) {
  boost::system::error_code error;
  stream.socket().shutdown(net::socket_base::shutdown_send, error);
  stream.expires_after(kPatience);
  std::array<char, kMostBody> waste;
  while (!error) co_await stream.async_read_some(net::buffer(waste), tells(error));
}

/// The index of the requested picture in kPictureNames; their number if none is.
std::size_t picture_of(const Site& site, const Request& request) {
  constexpr std::string_view folder = "/picture/";
  const std::string_view path = path_of(request);
  if (!site.subject.pictures || request.method() != http::verb::get || !path.starts_with(folder))
    return kPictureNames.size();
  return std::size_t(std::ranges::find(kPictureNames, path.substr(folder.size())) -
                     kPictureNames.begin());
}

struct Socket {
  explicit Socket(beast::tcp_stream stream) : ws(std::move(stream)), wake(ws.get_executor()) {
    wake.expires_at(net::steady_timer::time_point::max());
  }
  websocket::stream<beast::tcp_stream> ws;
  net::steady_timer wake;
  int room = kUnderWay;  ///< messages that may be sent
  bool gone = false;
};

/// Any message from a viewer acknowledges one of ours.
net::awaitable<void> read_to_end(std::shared_ptr<Socket> socket) {
  beast::flat_buffer buffer;
  boost::system::error_code error;
  while (!error) {
    co_await socket->ws.async_read(buffer, tells(error));
    buffer.clear();
    socket->room = std::min(socket->room + 1, kUnderWay);
    socket->gone = bool(error);
    socket->wake.cancel();
  }
}

/// Returns when a message may be sent or the time is up.
net::awaitable<void> room(Socket& socket, Line& line) {
  line.deadline = Clock::now() + kPatience;
  while (socket.room == 0 && !socket.gone) co_await wait(socket.wake);
  line.deadline = Clock::time_point::max();
}

net::awaitable<bool> accept(Socket& socket, const Request& request) {
  beast::get_lowest_layer(socket.ws).expires_never();  // the WebSocket has its own timeouts
  socket.ws.set_option(
      websocket::stream_base::timeout{.handshake_timeout = kPatience,
                                      .idle_timeout = 2 * kPatience,  // pings at half of it
                                      .keep_alive_pings = true});
  socket.ws.read_message_max(1024);
  socket.ws.auto_fragment(false);
  boost::system::error_code error;
  co_await socket.ws.async_accept(request, tells(error));
  co_return !error;
}

net::awaitable<bool> send(Socket& socket, Line& line, Bytes message, bool text) {
  --socket.room;
  socket.ws.text(text);
  line.deadline = Clock::now() + kPatience;
  boost::system::error_code error;
  co_await socket.ws.async_write(net::buffer(*message), tells(error));
  line.deadline = Clock::time_point::max();
  co_return !error;
}

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
  beast::get_lowest_layer(socket->ws).close();  // also ends the reader
}

/// Sends one of kPictureNames as the parts of an endless response; `brief`: only its header.
net::awaitable<void> watch_picture(Site& site, beast::tcp_stream& stream, std::size_t index,
                                   bool brief) {
  boost::system::error_code error;
  const auto write = [&](const auto& buffers) {
    stream.expires_after(kPatience);
    return net::async_write(stream, buffers, tells(error));
  };
  const std::string head =
      "HTTP/1.1 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=frame\r\n"
      "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
      "Cross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n\r\n";
  co_await write(net::buffer(head));
  if (brief) co_return;
  co_await write(net::buffer(std::string_view("--frame\r\n")));
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
    const std::string after = "\r\n--frame\r\n";  // sent at once: browsers show a part when it ends
    const std::array<net::const_buffer, 3> part = {net::buffer(before), net::buffer(*file),
                                                   net::buffer(after)};
    co_await write(part);
  }
}

}  // namespace

net::awaitable<void> serve(Site& site, net::ip::tcp::socket socket) {
  beast::tcp_stream stream(std::move(socket));
  const auto line = site.lines.insert(site.lines.end(), Line{[&stream] { stream.close(); }});
  const std::shared_ptr<void> enrolled(nullptr, [&](void*) {
    if (line->doing == Doing::watches) site.publisher.went();
    site.lines.erase(line);
  });
  beast::flat_buffer buffer(kMostHeader + kMostBody);
  for (bool more = true; more && !site.publisher.stopped();) {
    Request request;
    line->doing = Doing::asks;
    const auto error = co_await read_request(stream, buffer, request);
    line->doing = Doing::is_answered;
    if (is_malformed(error)) {
      co_await say(stream, malformed(error.message()));
      co_await drain(stream);
    }
    if (error) break;
    const bool brief = request.method() == http::verb::head;
    if (brief) request.method(http::verb::get);
    std::optional<Response> response = instead_of_answer(site, request);
    const bool welcome = !response;
    const std::size_t picture = welcome ? picture_of(site, request) : kPictureNames.size();
    const bool pictures = picture < kPictureNames.size();
    const bool live =
        welcome && !brief && path_of(request) == "/live" && beast::websocket::is_upgrade(request);
    if ((pictures || live) && site.has_room_to_watch()) {
      line->doing = Doing::watches;
      site.publisher.came();
      if (pictures)
        co_await watch_picture(site, stream, picture, brief);
      else
        co_await watch_live(site, std::move(stream), *line, std::move(request));
      break;
    }
    if (welcome) response = pictures || live ? crowded(request) : answer(site, request);
    if (brief) response->body().clear();  // its length stays in the header
    more = co_await say(stream, *response);
  }
}

}  // namespace millrace::page
