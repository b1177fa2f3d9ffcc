// Can a stream's origin be reached? Asked often while the stream is away, so asking is cheap.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace millrace::io {

/// Whether the origin can be reached; nothing while that is being found out. Never blocks. A server
/// that listens counts as reached though it may be frozen. Thread-bound.
using OriginProbe = std::function<std::optional<bool>()>;

/// For rtsp and http: is the server's port open, asked four times a second at most. For v4l2: is
/// the device there. Null for other schemes, and if the host's name has no address. Asks the name
/// service.
OriginProbe make_origin_probe(const std::string& uri);

}  // namespace millrace::io
