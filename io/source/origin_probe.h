// Whether a stream's origin is reachable; cheap, since asked often while the stream is away.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace millrace::io {

/// Whether the origin is reachable; nothing while that is open. Never blocks. A server that listens
/// counts as reachable even if frozen. Thread-bound.
using OriginProbe = std::function<std::optional<bool>()>;

/// rtsp, http: whether the server's port is open, asked at most four times a second; v4l2: whether
/// the device exists. Null for other schemes, or without an address. Asks the name service.
OriginProbe make_origin_probe(const std::string& uri);

}  // namespace millrace::io
