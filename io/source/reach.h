// Can a stream's origin be reached? Asked often while it is away, so asking is cheap.
#pragma once

#include <memory>    // std::unique_ptr<Reach>
#include <optional>  // not known yet
#include <string>    // URI

namespace millrace::io {

/// Thread-bound.
class Reach {
 public:
  virtual ~Reach() = default;
  /// Whether the origin can be reached; nothing while that is being found out. Never waits. A
  /// server that listens counts as reached though it may be frozen.
  virtual std::optional<bool> poll() = 0;
};

/// For rtsp, http: is the server's port open, asked four times a second at most; for v4l2: is the
/// device there. Null for others, and where the host's name has no address. Asks the name service.
std::unique_ptr<Reach> make_reach(const std::string& uri);

}  // namespace millrace::io
