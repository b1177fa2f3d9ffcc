#pragma once

#include <functional>
#include <optional>
#include <string>

namespace millrace::io {

/// Whether a stream's origin is reachable; nothing while unknown. Never blocks; cheap to ask often.
/// A server that listens counts as reachable even if frozen. Thread-bound.
using OriginProbe = std::function<std::optional<bool>()>;

/// rtsp, http: whether the server's port is open, asked at most four times a second; v4l2: whether
/// the device exists. Null for other schemes, or without an address. Asks the name service.
OriginProbe make_origin_probe(const std::string& uri);

}  // namespace millrace::io
