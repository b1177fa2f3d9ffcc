// The web page of a run, with what scripts and Prometheus read of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tools/page/gate.h"
#include "tools/page/live_state.h"
#include "tools/page/picture_board.h"

namespace millrace::page {

/// What the server shows; all of it outlives the server.
struct WebSubject {
  /// Called on the server's thread, one to about five times a second. Does not throw.
  std::function<Snapshot()> look;
  PictureBoard* pictures = nullptr;  ///< null: none
  FrameBoard* camera = nullptr;      ///< null: only pictures as large as the network's
  Controls* controls = nullptr;      ///< null: view only
  std::string snapshots = {};        ///< folder of the events' pictures; "": kept in memory
  /// Without snapshots: asked for the picture that an event begins with, as its input. May be null.
  PictureBoard* event_picture = nullptr;
  /// Teaches the detector that what began the event of that number is normal. False: it has
  /// forgotten that event. Thread-safe. Empty: it can't be taught.
  std::function<bool(std::int64_t event)> is_normal = {};
};

/// Serves HTTP on one thread of low priority until destroyed:
///   /  the page, and the files it loads    /live  WebSocket: state and pictures
///   /state  JSON    /history  JSON         /picture/{input,target,prediction,error,camera}  MJPEG
///   /events  JSON; POST: marks all     /events/NAME  PNG; POST: marks that event
///   /label  POST: a class, in the format of io::LiveLabels
///   /control  POST  /metrics  Prometheus   /healthz  200 or 503
/// Memory is bounded: connections and request sizes are limited, and a slow viewer skips to the
/// latest state, or is disconnected. Training delivers pictures only to viewers ready for them.
class WebServer {
 public:
  /// Closes all connections and joins.
  virtual ~WebServer() = default;

  /// "http://127.0.0.1:8080/", to show to users; without the token. Any thread.
  virtual std::string url() const = 0;
};
/// Is listening on return. Throws std::runtime_error "ADDR:PORT: cause".
std::unique_ptr<WebServer> start_server(const WebOptions& options, WebSubject subject);

}  // namespace millrace::page
