#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tools/app/outputs/checkpoints.h"
#include "tools/app/outputs/records.h"
#include "tools/page/server.h"

namespace millrace::app {

/// Publishes at the broker in [mqtt], retained: PREFIX/availability, "online" or "offline";
/// PREFIX/state, once a second, like the page's /state; PREFIX/event, the latest snapshot as PNG;
/// and Home Assistant's discovery. Takes PREFIX/control like the page's /control, and single words:
/// PREFIX/control/pause, PREFIX/control/label "night". Runs on its own thread, which survives the
/// broker's absence.
class MqttView {
 public:
  /// All arguments outlive the view; any thread may call `look`. `alerts` may be null.
  MqttView(const Config& config, std::function<page::Snapshot()> look, const Alerts* alerts,
           page::Controls& controls);
  ~MqttView();

  /// News for users, reported once: connected, away, a message that can't be executed. Any thread.
  std::string take_note();

 private:
  /// Calls publish() until the view ends; again some seconds after a failure, which it notes.
  void run();
  /// Connects, then publishes until the view ends.
  void publish();
  void note(const std::string& line);

  const Config& config_;
  const std::function<page::Snapshot()> look_;
  const Alerts* const alerts_;
  page::Controls& controls_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::string note_;
  std::thread thread_;  // last: uses the members above
};

/// Serves the page, if requested, and connects to the configured broker, while it lives. The last
/// stage's worker calls predicted(), the main thread obey() and take_note(), any thread paused()
/// and rests().
class LiveView final : public engine::Observer {
 public:
  /// All arguments outlive this. Throws std::runtime_error if the page can't be served.
  LiveView(const Request& request, Intake& intake, Learner& learner, Records& records,
           Checkpoints& checkpoints);

  void predicted(engine::Sample& sample, float loss) override;
  void obey();
  bool paused() const { return controls_.paused(); }
  /// Paused, and no save is due, for which every stage must reach the same sample.
  bool rests() const { return paused() && !saving_.load(std::memory_order_relaxed); }
  std::string url() const { return server_ ? server_->url() : ""; }  ///< "": not served
  /// News of the broker for users, reported once; "": none.
  std::string take_note() { return mqtt_ ? mqtt_->take_note() : ""; }

 private:
  void serve_page();
  /// Makes the reader show frames; null if they can't be shown.
  page::FrameBoard* show_camera();
  void show_event(engine::Sample& sample);
  page::Snapshot look() const;

  const Request& request_;
  Intake& intake_;
  Learner& learner_;
  Records& records_;
  Checkpoints& checkpoints_;
  const Config& config_;
  const std::string correction_, local_note_;
  page::Controls controls_;
  std::atomic<bool> saving_{false};
  page::Peak peak_;                ///< of the deviation, between two looks of the page
  std::int64_t saves_before_ = 0;  ///< written and failed
  const page::Json classes_;       ///< of pixels: names and colours; empty: no classes
  std::vector<float> most_;        ///< of each pixel's classes; scratch of the last stage's worker
  std::unique_ptr<page::PictureBoard> board_, event_board_;  ///< the second is null with snapshots
  std::shared_ptr<page::FrameBoard> camera_;                 ///< also the reader's
  std::int64_t events_ = 0;                                  ///< the last stage's worker's
  // last: they read the members above
  std::unique_ptr<page::WebServer> server_;
  std::unique_ptr<MqttView> mqtt_;
};

}  // namespace millrace::app
