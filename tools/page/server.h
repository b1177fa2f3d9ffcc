#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tools/page/gate.h"
#include "tools/page/live_state.h"
#include "tools/page/picture_board.h"

namespace millrace::page {

/// Sources of the server's contents; all outlive the server.
struct WebSubject {
  /// Called on the server's thread, one to about five times a second; does not throw.
  std::function<Snapshot()> look;
  PictureBoard* pictures = nullptr;  ///< null: none
  FrameBoard* camera = nullptr;      ///< null: only pictures as large as the network's
  Controls* controls;                ///< not null
  std::string snapshots = {};        ///< folder of the events' pictures; "": in memory
  /// Without snapshots: receives the picture with which an event begins, as its input; may be null.
  PictureBoard* event_picture = nullptr;
  /// Teaches the detector that the content of the event of that number is normal; false: the event
  /// is no longer known. Thread-safe.
  std::function<bool(std::int64_t event)> is_normal;
};

/// Serves the page and what assets/openapi.json lists, on one thread of low priority until
/// destroyed. Memory is bounded: connections and request sizes are limited, and a slow viewer skips
/// to the latest state, or is disconnected. Training delivers pictures only to viewers ready for
/// them.
class WebServer {
 public:
  virtual ~WebServer() = default;

  /// "http://127.0.0.1:8080/", to show to users; without the token. Any thread.
  virtual std::string url() const = 0;
};
/// Is listening on return. Throws std::runtime_error "ADDR:PORT: cause".
std::unique_ptr<WebServer> start_server(const WebOptions& options, WebSubject subject);

}  // namespace millrace::page
