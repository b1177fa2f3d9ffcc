// The page on which users watch and control a run.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "tools/app/intake.h"
#include "tools/app/learner.h"
#include "tools/app/outputs/records.h"
#include "tools/page/server.h"

namespace millrace::app {

/// Serves the page from construction to destruction. predicted() is called by the last stage's
/// worker, obey() by the main thread, paused() by any thread.
class LiveView final : public engine::Observer {
 public:
  /// All arguments outlive this. Throws std::runtime_error if the page can't be served.
  LiveView(const Request& request, const Intake& intake, Learner& learner, const Records& records);

  /// Copies the sample's pictures if a viewer waits for them.
  void predicted(engine::Sample& sample, float loss) override;
  /// Does what viewers have asked for since the last call.
  void obey();
  /// False while a save on demand is under way, for which every stage must reach the same sample.
  bool paused() const { return controls_.paused() && !saving_.load(std::memory_order_relaxed); }
  std::string url() const { return server_->url(); }

 private:
  page::PictureShape shown_shape(const stages::ImageShape& sample) const;
  page::Snapshot look() const;
  std::string trouble() const;  ///< which output can't be written; "": none
  std::vector<page::StageState> stages() const;

  const Config& config_;
  const Request& request_;
  const Intake& intake_;
  Learner& learner_;
  const Records& records_;
  const std::string correction_, local_note_;
  page::Controls controls_;
  std::atomic<bool> saving_{false};
  std::int64_t saves_before_ = 0;     ///< written and failed
  std::vector<std::string> classes_;  ///< of pixels; empty: pixels have none
  std::unique_ptr<page::PictureBoard> board_;
  std::unique_ptr<page::WebServer> server_;  ///< last: it reads all of the above
};

}  // namespace millrace::app
