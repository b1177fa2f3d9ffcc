#include "io/source/uri.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <filesystem>

#include "io/source/source.h"  // redacted

namespace millrace::io {
namespace {

bool can_be_scheme(std::string_view text) {
  const auto fits = [](unsigned char c) {
    return std::isalnum(c) || c == '+' || c == '-' || c == '.';
  };
  return !text.empty() && std::isalpha(static_cast<unsigned char>(text[0])) &&
         std::ranges::all_of(text, fits);
}

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

// Length of the "user:password@" at the start of `text`, which follows "://"; 0 if none. A password
// may hold an unescaped '/', '?', '#', quote or space, so it lasts to the last '@' of the word.
std::size_t credentials_length(std::string_view text) {
  for (const std::string_view form : {"[USER:PASSWORD@]", "USER:PASSWORD@"}) {
    if (text.starts_with(form)) return 0;  // a placeholder from the help
  }
  const std::string_view word = text.substr(0, text.find_first_of(" \t\n\"'"));
  const std::string_view authority = word.substr(0, word.find_first_of("/?#"));
  const std::size_t colon = authority.find(':'), last = word.rfind('@');
  if (authority.find('@') != authority.npos) return last + 1;
  if (colon == authority.npos) return 0;
  if (last == word.npos) {
    const std::string_view line = text.substr(0, text.find('\n'));
    return all_digits(authority.substr(colon + 1)) ? 0 : line.find('@') + 1;  // npos + 1 is 0
  }
  // HOST:PORT/PATH@MORE has a number before its first '/', and no host behind the '@'.
  const std::string_view behind = word.substr(last + 1);
  const bool path = all_digits(authority.substr(colon + 1)) && word[authority.size()] == '/' &&
                    behind.substr(0, behind.find_first_of("/?#")).find_first_of(".:") == word.npos;
  return path ? 0 : last + 1;
}

/// `text`: ends with the key.
bool names_a_secret(std::string_view text) {
  constexpr std::array<std::string_view, 15> endings = {
      "pw",  "pwd", "psw",  "pas",   "pass",   "passwd",    "password",   "passphrase",
      "key", "sig", "auth", "token", "secret", "signature", "credentials"};
  constexpr std::size_t kLongest = 11;  // more would take time quadratic in a text of many '='
  std::string lower(text.substr(text.size() - std::min(text.size(), kLongest)));
  for (char& c : lower) c = char(std::tolower(static_cast<unsigned char>(c)));
  return std::ranges::any_of(endings, [&](auto ending) { return lower.ends_with(ending); });
}

// Hides values in queries and in properties of GStreamer elements: "token=x", "user-pw = x".
void hide_secrets(std::string& text) {
  for (std::size_t at = 0; (at = text.find('=', at)) != std::string::npos; ++at) {
    const std::string_view before = std::string_view(text).substr(0, at);
    if (!names_a_secret(before.substr(0, before.find_last_not_of(' ') + 1))) continue;  // npos: 0
    const std::size_t begin = text.find_first_not_of(' ', at + 1);
    if (begin == std::string::npos) return;
    const bool quoted = text[begin] == '"' || text[begin] == '\'';
    std::size_t end =
        quoted ? text.find(text[begin], begin + 1) : text.find_first_of(" \t\n&!#\"'", begin);
    if (quoted && end != std::string::npos) ++end;
    if (!quoted && end != std::string::npos && text[end - 1] == ':') --end;  // a cause follows
    text.replace(begin, end == std::string::npos ? end : end - begin, "***");
  }
}

}  // namespace

Uri split_uri(const std::string& uri) {
  const std::size_t colon = uri.find(':');
  if (colon == std::string::npos || !can_be_scheme({uri.data(), colon})) return {"", uri};
  const bool slashes = uri.compare(colon + 1, 2, "//") == 0;
  std::error_code ignored;
  if (!slashes && std::filesystem::exists(uri, ignored)) return {"", uri};
  return {uri.substr(0, colon), uri.substr(colon + 1)};
}

Authority authority(const Uri& uri) {
  std::string text = uri.rest.substr(std::min<std::size_t>(2, uri.rest.size()));
  text = text.substr(0, text.find_first_of("/?#"));
  const std::size_t at = text.rfind('@');
  const std::string before = at == std::string::npos ? "" : text.substr(0, at);
  const std::size_t middle = std::min(before.find(':'), before.size());
  text = text.substr(at + 1);  // npos + 1 is 0
  const std::size_t bracket = text.rfind(']');
  std::size_t colon = text.rfind(':');
  if (bracket != std::string::npos && colon < bracket) colon = std::string::npos;
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  return {host, colon == std::string::npos ? "" : text.substr(colon + 1),
          percent_decoded(before.substr(0, middle)),
          percent_decoded(before.substr(std::min(middle + 1, before.size())))};
}

std::string authority_error(const Uri& uri, int least_port) {
  const Authority at = authority(uri);
  const std::string_view text =
      std::string_view(uri.rest).substr(std::min<std::size_t>(2, uri.rest.size()));
  const std::string_view before = text.substr(0, text.find_first_of("/?#"));
  const std::size_t secret = credentials_length(text);
  // Where credentials extend past the authority, only '#' cannot be part of a path or query.
  if (secret > before.size() && (before.find('@') == before.npos || text[before.size()] == '#'))
    return "write # / ? @ in a user or password as %23 %2F %3F %40";
  const bool brackets = at.host.find_first_of("[]") != std::string::npos;
  if (at.host.empty() || brackets) return "names no host";
  if (at.port.empty()) return "";
  int port = -1;
  const char* const end = at.port.data() + at.port.size();
  const auto [rest, bad] = std::from_chars(at.port.data(), end, port);
  if (bad == std::errc() && rest == end && port >= least_port && port <= 65535) return "";
  return "its port must be a number from " + std::to_string(least_port) +
         " to 65535";  // or a secret
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const char* const digits = text.data() + i + 1;
    const bool escape = text[i] == '%' && i + 2 < text.size() &&
                        std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2;
    out += escape ? char(value) : text[i];
    if (escape) i += 2;
  }
  return out;
}

std::string file_path(const Uri& uri) {
  if (uri.scheme.empty()) return uri.rest;
  std::string_view rest = uri.rest;
  if (rest.starts_with("//")) rest.remove_prefix(2);
  constexpr std::string_view host = "localhost/";
  if (rest.starts_with(host)) rest.remove_prefix(host.size() - 1);
  return percent_decoded(rest);
}

std::string redacted(const std::string& uri) {
  std::string text = uri;
  for (std::size_t at = 0; (at = text.find("://", at)) != std::string::npos;) {
    at += 3;
    if (const std::size_t length = credentials_length(std::string_view(text).substr(at)))
      text.replace(at, length, "***@");
  }
  hide_secrets(text);
  return text;
}

}  // namespace millrace::io
