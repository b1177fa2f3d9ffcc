// A connection: requests one after another, until one stays to watch.
#include <algorithm>  // names
#include <utility>    // Asio 1.74 takes it for granted

#include <boost/asio/redirect_error.hpp>      // errors as values
#include <boost/asio/use_awaitable.hpp>       // coroutines
#include <boost/beast/http/parser.hpp>        // limits
#include <boost/beast/http/read.hpp>          // requests
#include <boost/beast/http/write.hpp>         // answers
#include <boost/beast/websocket/rfc6455.hpp>  // is it one

#include "tools/page/site.h"

namespace millrace::page {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

constexpr std::size_t kMostHeader = 8 << 10;
constexpr std::size_t kMostBody = 4 << 10;
constexpr std::chrono::seconds kPatience{10};  // for a whole request, and for taking the answer

/// Reads one request within the limits; false when the connection is of no more use.
net::awaitable<bool> read_request(beast::tcp_stream& stream, beast::flat_buffer& buffer,
                                  Request& request) {
  http::request_parser<http::string_body> parser;
  parser.header_limit(kMostHeader);
  parser.body_limit(kMostBody);
  stream.expires_after(kPatience);  // of the whole, however slowly it drips
  boost::system::error_code error;
  co_await http::async_read(stream, buffer, parser, net::redirect_error(net::use_awaitable, error));
  if (error) co_return false;
  request = parser.release();
  co_return true;
}

net::awaitable<bool> say(beast::tcp_stream& stream, const Response& response) {
  stream.expires_after(kPatience);
  boost::system::error_code error;
  co_await http::async_write(stream, response, net::redirect_error(net::use_awaitable, error));
  co_return !error && response.keep_alive();
}

/// Which of kPictureNames a request wants to watch; their number if none.
std::size_t picture_of(const Site& site, const Request& request) {
  constexpr std::string_view folder = "/picture/";
  const std::string_view path = path_of(request);
  if (!site.subject.pictures || request.method() != http::verb::get || !path.starts_with(folder)) {
    return kPictureNames.size();
  }
  return std::size_t(
      std::find(kPictureNames.begin(), kPictureNames.end(), path.substr(folder.size())) -
      kPictureNames.begin());
}

}  // namespace

net::awaitable<void> serve(Site& site, net::ip::tcp::socket socket) {
  beast::tcp_stream stream(std::move(socket));
  Enrolled enrolled(site, [&stream] { stream.close(); });
  beast::flat_buffer buffer(kMostHeader + kMostBody);
  for (bool more = true; more && !site.publisher.stopped();) {
    Request request;
    Doing& doing = enrolled.line().doing;
    doing = Doing::asks;
    const bool read = co_await read_request(stream, buffer, request);
    doing = Doing::is_answered;
    if (!read) break;
    Response response;
    const bool welcome = admitted(site, request, response);
    const std::size_t picture = welcome ? picture_of(site, request) : kPictureNames.size();
    const bool pictures = picture < kPictureNames.size();
    const bool live =
        welcome && path_of(request) == "/live" && beast::websocket::is_upgrade(request);
    const bool stays = (pictures || live) && site.has_room_to_watch();
    if (stays) enrolled.watch();
    if (stays && pictures) {
      co_await watch_picture(site, stream, picture);
      break;
    }
    if (stays) {
      co_await watch_live(site, std::move(stream), enrolled.line(), std::move(request));
      break;
    }
    if (welcome) response = pictures || live ? crowded(request) : answer(site, request);
    more = co_await say(stream, response);
  }
}

}  // namespace millrace::page
