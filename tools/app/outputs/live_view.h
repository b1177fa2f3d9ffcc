#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "tools/app/outputs/mqtt_view.h"
#include "tools/app/request.h"
#include "tools/page/server.h"

namespace millrace::app {

struct RunParts;

/// Serves the page, if requested, and connects to the configured broker, from construction to
/// destruction. The last stage's worker calls predicted(), the main thread obey() and take_note(),
/// any thread paused().
class LiveView final : public engine::Observer {
 public:
  /// As Console's.
  explicit LiveView(RunParts& run);

  static bool wanted(const Request& request) {
    return request.options.serve || !request.config.mqtt.broker.empty();
  }

  void predicted(engine::Sample& sample, float loss) override;
  void obey();
  /// False during a requested save, since every stage must reach the same sample for it.
  bool paused() const { return controls_.paused() && !saving_.load(std::memory_order_relaxed); }
  std::string url() const { return server_ ? server_->url() : ""; }  ///< "": not served
  /// News of the broker for users, reported once; "": none.
  std::string take_note() { return mqtt_ ? mqtt_->take_note() : ""; }

 private:
  void serve_page();
  page::PictureShape shown_shape(const stages::ImageShape& sample) const;
  page::Snapshot look() const;
  std::string trouble() const;  ///< which output can't be written; "": none

  RunParts& run_;
  const Config& config_;
  const std::string correction_, local_note_;
  page::Controls controls_;
  std::atomic<bool> saving_{false};
  std::int64_t saves_before_ = 0;  ///< written and failed
  const page::Json classes_;       ///< of pixels: names and colours; empty: no classes
  std::unique_ptr<page::PictureBoard> board_;
  // Last: they read the members above.
  std::unique_ptr<page::WebServer> server_;
  std::unique_ptr<MqttView> mqtt_;
};

}  // namespace millrace::app
