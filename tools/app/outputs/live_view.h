// The page and the broker at which users watch and control a run.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "tools/app/outputs/mqtt_view.h"
#include "tools/app/request.h"
#include "tools/page/server.h"

namespace millrace::app {

struct RunParts;

/// Serves the page, if one was asked for, and the broker that the config names, from construction
/// to destruction. predicted() is called by the last stage's worker, obey() and take_note() by the
/// main thread, paused() by any thread.
class LiveView final : public engine::Observer {
 public:
  /// As Console.
  explicit LiveView(RunParts& run);

  static bool wanted(const Request& request) {
    return request.options.serve || !request.config.mqtt.broker.empty();
  }

  /// Copies the sample's pictures if a viewer waits for them.
  void predicted(engine::Sample& sample, float loss) override;
  /// Does what viewers have asked for since the last call.
  void obey();
  /// False while a save on demand is under way, for which every stage must reach the same sample.
  bool paused() const { return controls_.paused() && !saving_.load(std::memory_order_relaxed); }
  std::string url() const { return server_ ? server_->url() : ""; }  ///< "": not served
  /// What people should be told of the broker, once; "": nothing.
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
  const page::Json classes_;       ///< of pixels: names and colours; empty: pixels have none
  std::unique_ptr<page::PictureBoard> board_;
  // Last: they read all of the above.
  std::unique_ptr<page::WebServer> server_;
  std::unique_ptr<MqttView> mqtt_;
};

}  // namespace millrace::app
