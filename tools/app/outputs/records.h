// What a run keeps and writes while it learns.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/trace/action_log.h"
#include "engine/trainer/checkpointer.h"
#include "io/files/whole_file.h"
#include "tools/app/alerts/alerts.h"
#include "tools/app/checkpoint_files.h"
#include "tools/app/learner.h"
#include "tools/app/observers.h"
#include "tools/app/outputs/frame_log.h"
#include "tools/app/outputs/run_log.h"
#include "tools/app/outputs/video_out.h"

namespace millrace::app {

/// How a run has gone so far.
struct Progress {
  std::atomic<bool> stopping{false};       ///< no further frame is wanted; any thread
  engine::Clock::time_point began, ended;  ///< learning
  bool learning = false;                   ///< workers run; the main thread's
  engine::FrameCounts frames;              ///< once it has ended
  std::string source_error;                ///< why the stream broke off; "": it did not
};

/// Parts that the config does not ask for are null.
struct Records {
  /// All arguments outlive this.
  Records(Request& request, const Intake& intake, Learner& learner, RankTeam* team,
          const Progress& progress);

  /// `limit`: number of frames to train on; 0: no limit.
  engine::PipelineOptions pipeline_options(Learner& learner, std::int64_t limit);

  /// Why checkpoint and log can't be written now; "": they can, or there are none. Any
  /// thread.
  std::string checkpoint_error() const { return checkpointer ? checkpointer->error() : ""; }
  std::string log_error() const { return lines ? lines->error() : ""; }

  Observers observers;
  RunLog log;
  std::function<void(const Prediction&)> see;  ///< the user's; set before the run
  std::vector<std::unique_ptr<Sink>> sinks;    ///< of plug-ins
  std::unique_ptr<VideoOut> video;
  std::unique_ptr<FrameLog> lines;
  std::unique_ptr<engine::ActionLog> actions;
  std::unique_ptr<Alerts> alerts;
  std::optional<io::FolderClaim> claim;  ///< keeps other runs out of the folder
  CheckpointFiles checkpoints;
  std::unique_ptr<engine::Checkpointer> checkpointer;

 private:
  void count_in_trace(const io::FrameQueue& queue);
  void raise_alerts(const Config& config, const Intake& intake, const engine::Trainer& trainer);
  void show(engine::Sample& sample, float loss);  ///< to `see` and `sinks`
};

}  // namespace millrace::app
