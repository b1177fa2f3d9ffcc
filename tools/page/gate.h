#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace::page {

struct WebOptions {
  std::string address = "127.0.0.1";  ///< an IP address; "::" or "0.0.0.0": on every interface
  std::uint16_t port = 8080;          ///< 0: any free one
  std::string token;                  ///< required of every client; "": none
};

/// Parses "", "PORT", "ADDR", "ADDR:PORT" or "[::1]:PORT"; "localhost" is 127.0.0.1. Throws
/// std::invalid_argument with a one-line message for anything else, for an address reachable from
/// other machines without a token, and as check_token() does.
WebOptions web_options(std::string_view where, std::string_view token);

/// Throws std::invalid_argument if a token is too short or has characters that URLs must escape.
/// Accepts "": no token.
void check_token(std::string_view token);

/// Access control by a request's headers alone; "": missing. Immutable, so thread-safe.
class Gate {
 public:
  /// `port`: the actual one; it makes the cookies of two runs on one machine differ.
  Gate(const WebOptions& options, std::uint16_t port);

  /// On loopback only loopback names are accepted, which stops DNS rebinding.
  bool host_is_ours(std::string_view host) const;
  /// Whether the request has the token, if required, as "Authorization: Bearer TOKEN" or cookie.
  bool admits(std::string_view authorization, std::string_view cookies) const;
  bool is_token(std::string_view token) const;
  /// True for requests from our own page, and for those from no page.
  static bool same_origin(std::string_view origin, std::string_view host);
  /// "Set-Cookie" for a browser that has the token: another secret, valid while this object lives.
  std::string cookie() const;

 private:
  bool loopback_;
  std::string token_;
  std::string cookie_name_;
  std::string session_;  ///< 128 random bits in hexadecimal
};

}  // namespace millrace::page
