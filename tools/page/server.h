// A page on which people watch a run learn, and what scripts and Prometheus read of it.
#pragma once

#include <cstdint>     // ports
#include <functional>  // where snapshots come from
#include <memory>      // a server of this build
#include <string>      // where it is served

#include "tools/page/controls.h"
#include "tools/page/gate.h"
#include "tools/page/live_state.h"
#include "tools/page/picture_board.h"

namespace millrace::page {

/// What the server shows; all of it outlives the server.
struct WebSubject {
  /// Called on the server's thread, once to some five times a second. Does not throw.
  std::function<Snapshot()> look;
  PictureBoard* pictures = nullptr;  ///< null: none to show
  Controls* controls = nullptr;      ///< null: look, don't touch
};

/// Serves over HTTP on one thread of its own, of low priority, until destroyed:
///   /  the page, and the files it loads    /live  WebSocket: state and pictures
///   /state  JSON    /history  JSON         /picture/{input,target,prediction,error}  MJPEG
///   /label  POST: a class, as io::LiveLabels hears it
///   /control  POST  /metrics  Prometheus   /healthz  200 or 503
/// Memory is bounded: so many connections, so long a request, and a viewer that does not keep up
/// gets the latest there is when it is ready for more, or is let go if it never is. Pictures are
/// asked of training only while a viewer is ready for them.
class WebServer {
 public:
  /// Hangs up on everybody and joins.
  virtual ~WebServer() = default;

  // Any thread.
  virtual std::uint16_t port() const = 0;
  /// "http://127.0.0.1:8080/", to be told to people; without the token.
  virtual std::string url() const = 0;
  /// Pages and picture streams being watched.
  virtual int viewers() const = 0;
};
/// Listens when this returns. Throws std::runtime_error "ADDR:PORT: cause".
std::unique_ptr<WebServer> start_server(const WebOptions& options, WebSubject subject);

}  // namespace millrace::page
