#pragma once

#include <string>
#include <string_view>

namespace millrace::io {

/// "rtsp" and "//host/path"; a bare path has the scheme "" and is all rest.
struct Uri {
  std::string scheme;
  std::string rest;

  bool is_file() const { return scheme.empty() || scheme == "file"; }
  bool is_http() const { return scheme == "http" || scheme == "https"; }
  bool is_rtsp() const { return scheme == "rtsp" || scheme == "rtsps"; }
};

/// Splits at the first colon after a valid scheme. "a:b" is a bare path if that file exists.
Uri split_uri(const std::string& uri);

/// The parts of "//user:password@host:port/path", decoded; "" where missing. "[::1]" is host "::1".
struct Authority {
  std::string host;
  std::string port;
  std::string user, password;
};
Authority authority(const Uri& uri);
/// "" if `uri` has a host, and a port from `least_port` to 65535 or none; else what is wrong.
std::string authority_error(const Uri& uri, int least_port = 1);

/// Decodes "%20" etc. A "%" without two hexadecimal digits stays.
std::string percent_decoded(std::string_view text);

std::string file_path(const Uri& uri);

}  // namespace millrace::io
