// The only file that includes Boost.Beast.
#include "tools/page/http.h"

#include <glib.h>

#include <array>
#include <cstdint>
#include <memory>

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/websocket/rfc6455.hpp>

namespace millrace::page {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;

constexpr std::size_t kMostHeader = 8 << 10;
constexpr std::size_t kMostBody = 4 << 10;
constexpr std::size_t kMostPayload = 1024;
constexpr std::size_t kMostControl = 125;  // RFC 6455, 5.5

std::string copied(beast::string_view view) {
  return {view.data(), view.size()};
}

}  // namespace

std::optional<std::size_t> parse_request(std::string_view bytes, Request& out) {
  http::request_parser<http::string_body> parser;
  parser.header_limit(kMostHeader);
  parser.body_limit(kMostBody);
  parser.eager(true);
  boost::system::error_code error;
  const std::size_t used = parser.put(boost::asio::const_buffer(bytes.data(), bytes.size()), error);
  if (error && error != http::error::need_more) return std::nullopt;
  if (!parser.is_done()) {
    if (bytes.size() > kMostHeader + kMostBody) return std::nullopt;
    return 0;
  }
  const http::request<http::string_body> request = parser.release();
  out = {.method = copied(request.method_string()),
         .target = copied(request.target()),
         .body = request.body(),
         .host = copied(request[http::field::host]),
         .origin = copied(request[http::field::origin]),
         .authorization = copied(request[http::field::authorization]),
         .cookie = copied(request[http::field::cookie]),
         .content_type = copied(request[http::field::content_type]),
         .x_millrace = copied(request["X-Millrace"]),
         .keep_alive = request.keep_alive(),
         .http_1_0 = request.version() < 11};
  if (beast::websocket::is_upgrade(request) &&
      request[http::field::sec_websocket_version] == "13") {
    out.websocket_key = copied(request[http::field::sec_websocket_key]);
  }
  return used;
}

std::string response_bytes(const Request& request, const Response& response) {
  const beast::string_view reason =
      http::obsolete_reason(http::int_to_status(unsigned(response.status)));
  std::string out = request.http_1_0 ? "HTTP/1.0 " : "HTTP/1.1 ";
  out += std::to_string(response.status) + " " + copied(reason) + "\r\n";
  if (request.keep_alive == request.http_1_0)  // differs from the version's default
    out += request.keep_alive ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
  out += "Content-Type: " + response.type + "\r\n";
  out += "Content-Length: " + std::to_string(response.body.size()) + "\r\n";
  out +=
      "Cache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\n"
      "Referrer-Policy: no-referrer\r\n"
      // Other sites may not load our files into their pages or put our page into a frame.
      "Cross-Origin-Resource-Policy: same-origin\r\n"
      // dygraphs places its labels by style attributes.
      "Content-Security-Policy: default-src 'self'; style-src 'self' 'unsafe-inline'; "
      "frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n";
  return out + response.headers + "\r\n" + response.body;
}

std::string websocket_accepted(std::string_view key) {
  const std::string text = std::string(key) + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  const std::unique_ptr<GChecksum, decltype(&g_checksum_free)> sum(g_checksum_new(G_CHECKSUM_SHA1),
                                                                   g_checksum_free);
  g_checksum_update(sum.get(), reinterpret_cast<const guchar*>(text.data()), gssize(text.size()));
  std::array<guint8, 20> digest;
  gsize length = digest.size();
  g_checksum_get_digest(sum.get(), digest.data(), &length);
  const std::unique_ptr<gchar, decltype(&g_free)> accept(g_base64_encode(digest.data(), length),
                                                         g_free);
  return std::string(
             "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
             "Sec-WebSocket-Accept: ") +
         accept.get() + "\r\n\r\n";
}

std::string frame_header(Opcode opcode, std::size_t length) {
  std::string header(1, char(0x80 | int(opcode)));
  const int bytes = length < 126 ? 0 : length < 1 << 16 ? 2 : 8;
  header += char(bytes == 0 ? length : bytes == 2 ? 126 : 127);
  for (int i = bytes; i-- > 0;) header += char(std::uint64_t(length) >> (8 * i) & 0xff);
  return header;
}

std::optional<std::size_t> parse_frame(std::string_view bytes, BrowserFrame& out) {
  if (bytes.size() < 2) return 0;
  const auto at = [&](std::size_t i) { return std::uint8_t(bytes[i]); };
  const int opcode = at(0) & 0x0f;
  const bool known = opcode <= 2 || (opcode >= 8 && opcode <= 10), control = opcode >= 8;
  const bool final = at(0) & 0x80, reserved = at(0) & 0x70, masked = at(1) & 0x80;
  std::size_t length = at(1) & 0x7f, begin = 2;
  if (!known || reserved || !masked || (control && (!final || length > kMostControl)))
    return std::nullopt;
  if (length == 126) {
    if (bytes.size() < 4) return 0;
    length = std::size_t(at(2)) << 8 | at(3);
    begin = 4;
  }
  if (length > kMostPayload || (at(1) & 0x7f) == 127) return std::nullopt;
  const std::size_t end = begin + 4 + length;
  if (bytes.size() < end) return 0;
  out = {.opcode = Opcode(opcode), .final = final};
  for (std::size_t i = 0; i < length; ++i)
    out.payload += char(at(begin + 4 + i) ^ at(begin + i % 4));
  return end;
}

}  // namespace millrace::page
