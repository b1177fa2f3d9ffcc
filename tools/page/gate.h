// Who may see and do what.
#pragma once

#include <cstdint>      // ports
#include <string>       // secrets
#include <string_view>  // what a request says

namespace millrace::page {

/// Where a page is served, and to whom.
struct WebOptions {
  std::string address = "127.0.0.1";  ///< an IP address; "::" or "0.0.0.0": on every interface
  std::uint16_t port = 8080;          ///< 0: any that is free
  std::string token;                  ///< asked of everybody if not empty
};

/// Options from "", "PORT", "ADDR" or "ADDR:PORT", "[::1]:PORT" among them; "localhost" is
/// 127.0.0.1. Throws std::invalid_argument with one line that says what is wrong: a text that is
/// none of these, an address that others can reach without a token, a token too short or of
/// characters that a URL does not take as they are.
WebOptions web_options(std::string_view where, std::string_view token);

/// Throws std::invalid_argument for a token too short or of characters that a URL does not take as
/// they are. "": there is none.
void check_token(std::string_view token);

/// 1 if equal, in a time that does not tell where they differ.
bool equal_secrets(std::string_view given, std::string_view secret);

/// A request's own word on where it comes from and who sent it; empty where it says nothing.
struct Credentials {
  std::string_view host;           ///< "Host"
  std::string_view origin;         ///< "Origin"
  std::string_view authorization;  ///< "Authorization"
  std::string_view cookie;         ///< "Cookie"
};

/// Decides on requests by their headers alone. Immutable, so any thread.
class Gate {
 public:
  /// `port`: the one really listened at, so that two runs on one machine have cookies of their own.
  Gate(const WebOptions& options, std::uint16_t port);

  /// False if the name asked for is not ours. On loopback only names of loopback are: a page of
  /// somebody else's whose name has been pointed at 127.0.0.1 (DNS rebinding) is sent away.
  bool host_is_ours(std::string_view host) const;
  /// No token is asked for, or one came with it, as "Authorization: Bearer TOKEN" or our cookie.
  bool admits(const Credentials& from) const;
  bool is_token(std::string_view token) const;
  /// The request comes from our own page, or from no page at all.
  static bool same_origin(const Credentials& from);
  /// What "Set-Cookie" says to somebody who brought the token. Not the token itself, and good for
  /// as long as this object lives.
  std::string cookie() const;

 private:
  bool loopback_;
  std::string token_;
  std::string cookie_name_;
  std::string session_;  ///< 128 random bits in hexadecimal digits
};

}  // namespace millrace::page
