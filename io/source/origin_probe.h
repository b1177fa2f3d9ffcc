// Can a stream's origin be reached? Asked often while the stream is away, so asking is cheap.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace millrace::io {

/// Thread-bound.
class OriginProbe {
 public:
  virtual ~OriginProbe() = default;
  /// Whether the origin can be reached; nothing while that is being found out. Never blocks. A
  /// server that listens counts as reached though it may be frozen.
  virtual std::optional<bool> poll() = 0;
};

/// For rtsp and http: is the server's port open, asked four times a second at most. For v4l2: is
/// the device there. Null for other schemes, and if the host's name has no address. Asks the name
/// service.
std::unique_ptr<OriginProbe> make_origin_probe(const std::string& uri);

}  // namespace millrace::io
