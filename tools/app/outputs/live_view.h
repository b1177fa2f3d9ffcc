// The page on which people watch a run: what it shows of the run, and what they may ask of it.
#pragma once

#include <atomic>  // the rate
#include <memory>  // the server
#include <string>  // texts

#include "engine/monitor/real_time.h"
#include "engine/trainer/checkpointer.h"
#include "engine/trainer/trainer.h"
#include "io/queue/frame_queue.h"
#include "io/source/live_labels.h"
#include "io/source/stream_health.h"
#include "tools/app/config/config.h"
#include "tools/page/server.h"
#include "tools/app/outputs/run_log.h"
#include "tools/app/outputs/write_watch.h"

namespace millrace::app {

/// What a LiveView looks at; all of it outlives the view.
struct LiveSubject {
  engine::Trainer& trainer;
  const io::FrameQueue& queue;
  const RunLog& log;
  const engine::RealTime& real_time;
  std::shared_ptr<const io::StreamHealth> health;
  engine::Checkpointer* checkpointer;  ///< null: nothing to save to
  const WriteWatch& writes;
  std::atomic<double>& rate;               ///< times optimizer.lr; viewers may set it
  std::string correction;                  ///< what is done about old gradients
  std::string local_note;                  ///< what learning by auxiliary heads would do instead
  std::int64_t frames_before = 0;          ///< that a checkpoint had learned from
  std::shared_ptr<io::LiveLabels> labels;  ///< that viewers may tell; null: none
};

/// Serves the page from construction to destruction. predicted() is the last stage's worker's;
/// obey() the main thread's; paused() any thread's.
class LiveView final : public engine::Observer {
 public:
  /// `serve`: "ADDR:PORT" or "". Throws std::runtime_error if it can't be served there.
  LiveView(const Config& config, const stages::ImageShape& sample, const std::string& serve,
           const std::string& token, LiveSubject subject);

  /// Copies the sample's pictures if somebody waits for them.
  void predicted(engine::Sample& sample, float loss) override;
  /// Does what viewers asked for since the last call.
  void obey();
  /// Not while it saves on demand: for that, all stages have to reach one moment.
  bool paused() const { return controls_.paused() && !saving_.load(std::memory_order_relaxed); }
  std::string url() const { return server_->url(); }

 private:
  page::PictureShape shown_shape(const stages::ImageShape& sample) const;
  page::Snapshot look() const;
  std::vector<page::StageState> stages() const;

  const Config& config_;
  LiveSubject subject_;
  page::Controls controls_;
  std::atomic<bool> saving_{false};
  std::int64_t saves_before_ = 0;     ///< written and failed
  std::vector<std::string> classes_;  ///< of pixels; empty: they have none
  std::unique_ptr<page::PictureBoard> board_;
  std::unique_ptr<page::WebServer> server_;  ///< last: it looks at all of the above
};

}  // namespace millrace::app
