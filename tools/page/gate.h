// Access control: who may see the page and use its controls.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace::page {

/// Where a page is served, and to whom.
struct WebOptions {
  std::string address = "127.0.0.1";  ///< an IP address; "::" or "0.0.0.0": on every interface
  std::uint16_t port = 8080;          ///< 0: any that is free
  std::string token;                  ///< required of everybody; "": none is
};

/// Parses "", "PORT", "ADDR", "ADDR:PORT" or "[::1]:PORT"; "localhost" is 127.0.0.1. Throws
/// std::invalid_argument with a one-line message for anything else, for an address that others can
/// reach without a token, and as check_token() does.
WebOptions web_options(std::string_view where, std::string_view token);

/// Throws std::invalid_argument if a token is too short or contains characters that must be escaped
/// in URLs. "" means no token.
void check_token(std::string_view token);

/// Compares in a time that does not depend on where they differ.
bool equal_secrets(std::string_view given, std::string_view secret);

/// The headers that say where a request comes from and who sent it; "": missing.
struct Credentials {
  std::string_view host;           ///< "Host"
  std::string_view origin;         ///< "Origin"
  std::string_view authorization;  ///< "Authorization"
  std::string_view cookie;         ///< "Cookie"
};

/// Decides on requests by their headers alone. Immutable, so thread-safe.
class Gate {
 public:
  /// `port`: the actual one, so that two runs on one machine have different cookies.
  Gate(const WebOptions& options, std::uint16_t port);

  /// False if the request is for another host name. On loopback only loopback names are ours, so a
  /// foreign page whose name points to 127.0.0.1 (DNS rebinding) is refused.
  bool host_is_ours(std::string_view host) const;
  /// No token is required, or the request has it as "Authorization: Bearer TOKEN" or our cookie.
  bool admits(const Credentials& from) const;
  bool is_token(std::string_view token) const;
  /// The request comes from our own page, or not from a page.
  static bool same_origin(const Credentials& from);
  /// The value of "Set-Cookie" for a browser that has the token. A secret of its own, valid for as
  /// long as this object lives.
  std::string cookie() const;

 private:
  bool loopback_;
  std::string token_;
  std::string cookie_name_;
  std::string session_;  ///< 128 random bits in hexadecimal digits
};

}  // namespace millrace::page
