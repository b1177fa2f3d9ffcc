// The protocols of the page: HTTP and, as far as the page needs it, WebSocket (RFC 6455).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tools/page/gate.h"

namespace millrace::page {

/// What the page reads of a request. A header that is missing is "".
struct Request {
  std::string method, target, body;
  std::string host, origin, authorization, cookie, content_type, x_millrace;
  std::string websocket_key;  ///< "": this is no WebSocket handshake
  bool keep_alive = false;
  bool http_1_0 = false;

  /// "/state" of "/state?x=y".
  std::string_view path() const { return std::string_view(target).substr(0, target.find('?')); }
  Credentials credentials() const {
    return {.host = host, .origin = origin, .authorization = authorization, .cookie = cookie};
  }
};

/// The request that `bytes` begin with. Returns its length, 0 if its end is missing, or nothing if
/// it is malformed or larger than 8 KiB of header and 4 KiB of body.
std::optional<std::size_t> parse_request(std::string_view bytes, Request& out);

struct Response {
  int status = 200;
  std::string type;  ///< of the body
  std::string body;
  std::string headers;  ///< beside those every response has: "Name: value\r\n"
};

/// The bytes of a response to `request`.
std::string response_bytes(const Request& request, const Response& response);

/// The response to a handshake with this Sec-WebSocket-Key.
std::string websocket_accepted(std::string_view key);

enum class Opcode { continuation = 0, text = 1, binary = 2, close = 8, ping = 9, pong = 10 };

/// What precedes a payload of that length from the server, in one frame.
std::string frame_header(Opcode opcode, std::size_t length);

/// A frame from the browser.
struct BrowserFrame {
  Opcode opcode = Opcode::text;
  bool final = true;  ///< the message's last
  std::string payload;
};

/// The frame that `bytes` begin with. Returns its length, 0 if its end is missing, or nothing if it
/// violates the protocol or is larger than 1 KiB.
std::optional<std::size_t> parse_frame(std::string_view bytes, BrowserFrame& out);

}  // namespace millrace::page
