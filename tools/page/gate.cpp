#include "tools/page/gate.h"

#include <strings.h>

#include <algorithm>
#include <charconv>
#include <random>
#include <stdexcept>

#include "engine/format.h"
#include "io/network/dial.h"

namespace millrace::page {
namespace {

constexpr std::size_t kLeastToken = 16;
constexpr std::string_view kExpected = "--serve takes ADDR:PORT, as in 127.0.0.1:8080";

std::uint16_t port_of(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw std::invalid_argument("\"" + std::string(text) + "\" is not a port; " +
                                std::string(kExpected));
  }
  return port;
}

// "host:80" without the port; "[::1]:80" as "[::1]".
std::string_view without_port(std::string_view host) {
  const std::size_t colon = host.rfind(':');
  const std::size_t bracket = host.rfind(']');
  if (colon == std::string_view::npos) return host;
  return bracket != std::string_view::npos && colon < bracket ? host : host.substr(0, colon);
}

std::string_view cookie_value(std::string_view cookies, std::string_view name) {
  while (!cookies.empty()) {
    std::string_view one = cookies.substr(0, cookies.find(';'));
    cookies.remove_prefix(std::min(one.size() + 1, cookies.size()));
    one.remove_prefix(std::min(one.find_first_not_of(' '), one.size()));
    if (one.size() > name.size() && one.starts_with(name) && one[name.size()] == '=')
      return one.substr(name.size() + 1);
  }
  return {};
}

/// Constant time, against timing attacks. `secret`: not empty.
bool equal_secrets(std::string_view given, std::string_view secret) {
  volatile unsigned char different = given.size() == secret.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i)
    different = different | (unsigned(given[i]) ^ unsigned(secret[i % secret.size()]));
  return different == 0;
}

std::string random_secret() {
  std::random_device random;
  std::string secret;
  for (int i = 0; i < 4; ++i) secret += engine::format("%08x", random());
  return secret;
}

}  // namespace

void check_token(std::string_view token) {
  constexpr std::string_view plain =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-._~";
  if (!token.empty() &&
      (token.size() < kLeastToken || token.find_first_not_of(plain) != token.npos))
    throw std::invalid_argument(
        "a token has at least 16 characters, each a letter, a digit or one of - . _ ~");
}

WebOptions web_options(std::string_view where, std::string_view token) {
  WebOptions options;
  options.token = token;
  check_token(token);
  const std::size_t colon = where.rfind(':');
  const bool v6_alone = where.ends_with(']') || std::count(where.begin(), where.end(), ':') > 1;
  std::string_view address = where, port;
  if (where.find_first_not_of("0123456789") == where.npos) {
    address = {};
    port = where;
  } else if (colon != std::string_view::npos && !(v6_alone && where.find("]:") == where.npos)) {
    address = where.substr(0, colon);
    port = where.substr(colon + 1);
    if (port.empty()) throw std::invalid_argument(std::string(kExpected));
  }
  if (address.starts_with('[') && address.ends_with(']'))
    address = address.substr(1, address.size() - 2);
  if (!port.empty()) options.port = port_of(port);
  if (!address.empty()) options.address = address == "localhost" ? "127.0.0.1" : address;
  if (!io::is_loopback(options.address) && token.empty()) {
    throw std::invalid_argument("others can reach " + options.address +
                                ": serving there needs a token");
  }
  return options;
}

Gate::Gate(const WebOptions& options, std::uint16_t port)
    : loopback_(io::is_loopback(options.address)),
      token_(options.token),
      cookie_name_("millrace_" + std::to_string(port)),
      session_(random_secret()) {}

bool Gate::host_is_ours(std::string_view host) const {
  if (!loopback_) return !host.empty();  // the token or cookie is required anyway
  const std::string_view name = without_port(host);
  return name == "localhost" || name == "[::1]" ||
         (name.starts_with("127.") && name.find_first_not_of("0123456789.") == name.npos);
}

bool Gate::is_token(std::string_view token) const {
  return !token_.empty() && equal_secrets(token, token_);
}

bool Gate::admits(std::string_view authorization, std::string_view cookies) const {
  if (token_.empty()) return true;
  constexpr std::string_view bearer = "Bearer ";
  if (authorization.size() >= bearer.size() &&
      strncasecmp(authorization.data(), bearer.data(), bearer.size()) == 0)
    return is_token(authorization.substr(bearer.size()));
  return equal_secrets(cookie_value(cookies, cookie_name_), session_);
}

bool Gate::same_origin(std::string_view origin, std::string_view host) {
  if (origin.empty()) return true;
  const std::size_t slashes = origin.find("://");
  return slashes != origin.npos && origin.substr(slashes + 3) == host;
}

std::string Gate::cookie() const {
  return cookie_name_ + "=" + session_ + "; Path=/; HttpOnly; SameSite=Strict";
}

}  // namespace millrace::page
