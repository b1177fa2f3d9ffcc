// Taking URIs apart. Public: redacted() in source.h; the rest serves the source openers.
#pragma once

#include <span>         // known names
#include <string>       // URIs
#include <string_view>  // pieces of them

namespace millrace::io {

/// A URI in two parts: "rtsp" and "//host/path"; a bare path has the scheme "" and is all rest.
struct Uri {
  std::string scheme;
  std::string rest;

  bool is_file() const { return scheme.empty() || scheme == "file"; }
  bool is_http() const { return scheme == "http" || scheme == "https"; }
  bool is_rtsp() const { return scheme == "rtsp" || scheme == "rtsps"; }
};

/// Splits at the first colon if what stands before it can be a scheme. "a:b" without "//" is a
/// bare path if a file of that very name exists.
Uri split_uri(const std::string& uri);

/// The parts of "//user:password@host:port/path"; "" where there is none. The host of "[::1]" is
/// "::1"; user and password are decoded.
struct Authority {
  std::string host;
  std::string port;
  std::string user, password;
};
Authority authority(const Uri& uri);

/// Whether only this machine reaches what is served at `host`, an address or "localhost".
bool is_loopback(const std::string& host);

/// "%20" to a space and so on; what is not two hexadecimal digits stays as it is.
std::string percent_decoded(std::string_view text);

/// The path of file://PATH, file:PATH or a bare path.
std::string file_path(const Uri& uri);

/// The name that takes the fewest changes to get to: a letter more, less or another, or two
/// neighbours exchanged. The first of equals.
std::string nearest_name(std::string_view name, std::span<const std::string_view> known);

}  // namespace millrace::io
