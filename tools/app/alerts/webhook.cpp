#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "io/network/dial.h"
#include "io/source/source.h"
#include "io/source/uri.h"
#include "tools/app/alerts/channels.h"

namespace millrace::app {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongestLine = 8 << 10;

std::string base64(std::string_view text) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += 3) {
    unsigned bits = 0;
    for (std::size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (i + k < text.size() ? std::uint8_t(text[i + k]) : 0);
    for (std::size_t k = 0; k < 4; ++k)
      out += i + k <= text.size() ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::string request_of(const std::string& url, const std::string& json) {
  const io::Uri uri = io::split_uri(url);
  const io::Authority at = io::authority(uri);
  const std::size_t slash = uri.rest.find('/', 2);
  const std::string host = at.host.find(':') == at.host.npos ? at.host : "[" + at.host + "]";
  std::string request = "POST " + (slash == uri.rest.npos ? "/" : uri.rest.substr(slash)) +
                        " HTTP/1.1\r\nHost: " + host + (at.port.empty() ? "" : ":" + at.port) +
                        "\r\nUser-Agent: millrace\r\nContent-Type: application/json\r\n"
                        "Connection: close\r\nContent-Length: " +
                        std::to_string(json.size()) + "\r\n";
  if (!at.user.empty())
    request += "Authorization: Basic " + base64(at.user + ":" + at.password) + "\r\n";
  return request + "\r\n" + json;
}

struct TimedOut {};

void wait(int socket, short events, Clock::time_point limit) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - Clock::now()).count();
  pollfd wanted{socket, events, 0};
  if (left <= 0 || ::poll(&wanted, 1, int(left)) == 0) throw TimedOut();
}

void connect(std::optional<io::Dial>& dial, const std::vector<io::Address>& addresses,
             Clock::time_point limit) {
  int error = 0;
  for (const io::Address& address : addresses) {
    dial.emplace(address);
    while (!dial->result()) wait(dial->socket(), POLLOUT, limit);
    error = *dial->result();
    if (error == 0) return;
  }
  throw std::runtime_error(addresses.empty() ? "unknown host" : std::strerror(error));
}

std::string exchange(int socket, std::string_view request, Clock::time_point limit) {
  while (!request.empty()) {
    wait(socket, POLLOUT, limit);
    const ssize_t sent = ::send(socket, request.data(), request.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
      throw std::runtime_error(std::strerror(errno));
    request.remove_prefix(std::size_t(std::max<ssize_t>(sent, 0)));
  }
  std::string answer;
  while (answer.find("\r\n") == answer.npos && answer.size() < kLongestLine) {
    wait(socket, POLLIN, limit);
    char bytes[1024];
    const ssize_t length = ::recv(socket, bytes, sizeof bytes, 0);
    if (length < 0 && errno != EAGAIN && errno != EINTR)
      throw std::runtime_error(std::strerror(errno));
    if (length == 0) break;
    answer.append(bytes, std::size_t(std::max<ssize_t>(length, 0)));
  }
  return answer.substr(0, answer.find("\r\n"));
}

/// 204 for "HTTP/1.1 204 No Content"; 0 if `line` is no status line.
int status_of(const std::string& line) {
  const std::size_t space = line.find(' ');
  if (!line.starts_with("HTTP/1.") || space == line.npos) return 0;
  return std::atoi(line.c_str() + space);
}

}  // namespace

std::string webhook_error(const std::string& url) {
  const io::Uri uri = io::split_uri(url);
  if (uri.scheme == "https") return "https:// is not supported; post to an http:// proxy instead";
  const std::string wrong = uri.scheme == "http" ? io::authority_error(uri) : "is not http";
  return wrong.empty() ? "" : wrong + "; must be http://[USER:PASSWORD@]HOST[:PORT][/PATH]";
}

void post_json(const std::string& url, const std::string& json, std::chrono::milliseconds limit) {
  const Clock::time_point end = Clock::now() + limit;
  const io::Authority at = io::authority(io::split_uri(url));
  int status = 0;
  try {
    std::optional<io::Dial> dial;
    const auto found = io::addresses_of(at.host, at.port.empty() ? "80" : at.port, limit);
    if (!found) throw TimedOut();
    connect(dial, *found, end);
    status = status_of(exchange(dial->socket(), request_of(url, json), end));
  } catch (const TimedOut&) {
    throw std::runtime_error(io::redacted(url) + ": no response within " +
                             std::to_string(limit.count()) + " ms");
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(io::redacted(url) + ": " + error.what());
  }
  if (status == 0) throw std::runtime_error(io::redacted(url) + ": the response is not HTTP");
  if (status < 200 || status > 299)
    throw std::runtime_error(io::redacted(url) + ": answered " + std::to_string(status));
}

}  // namespace millrace::app
