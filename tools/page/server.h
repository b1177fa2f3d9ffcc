// The web server of a run: the page, and the same numbers for scripts and Prometheus.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "tools/page/controls.h"
#include "tools/page/gate.h"
#include "tools/page/live_state.h"
#include "tools/page/picture_board.h"

namespace millrace::page {

/// What the server shows. All of it outlives the server.
struct WebSubject {
  /// Called on the server's thread, one to about five times a second.
  std::function<Snapshot()> look;
  PictureBoard* pictures = nullptr;  ///< null: none to show
  Controls* controls = nullptr;      ///< null: there are none
  /// Takes a label as JSON, on the server's thread; returns "" or an error. Empty: labels are
  /// refused.
  std::function<std::string(std::string_view)> hear_label = {};
};

/// Serves over HTTP on one thread of its own, of low priority, until destroyed:
///   /  the page, and the files it loads    /live  WebSocket: state and pictures
///   /state  JSON    /history  JSON         /picture/{input,target,prediction,error}  MJPEG
///   /label  POST: see io::LiveLabels::hear()
///   /control  POST  /metrics  Prometheus   /healthz  200 or 503
/// Memory is bounded: connections and request lengths are limited, and a slow viewer gets the
/// latest state when it is ready for more, or is dropped after 10 s. Training is asked for pictures
/// only while a viewer is ready for them.
class WebServer {
 public:
  /// Returns when it listens. Throws std::runtime_error "ADDR:PORT: cause".
  WebServer(const WebOptions& options, WebSubject subject);
  /// Closes all connections and joins.
  ~WebServer();
  WebServer(const WebServer&) = delete;
  WebServer& operator=(const WebServer&) = delete;

  // Any thread.
  std::uint16_t port() const;
  /// "http://127.0.0.1:8080/", without the token.
  std::string url() const;
  /// Open pages and picture streams.
  int viewers() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace millrace::page
