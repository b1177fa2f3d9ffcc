// What a run keeps and writes while it learns.
#pragma once

#include <memory>
#include <optional>

#include "engine/trace/action_log.h"
#include "engine/trainer/checkpointer.h"
#include "io/files/whole_file.h"
#include "tools/app/callback.h"
#include "tools/app/checkpoint_files.h"
#include "tools/app/learner.h"
#include "tools/app/observers.h"
#include "tools/app/outputs/alert_watch.h"
#include "tools/app/outputs/frame_log.h"
#include "tools/app/outputs/run_log.h"
#include "tools/app/outputs/trace_counters.h"
#include "tools/app/outputs/video_out.h"
#include "tools/app/outputs/write_watch.h"
#include "tools/app/progress.h"

namespace millrace::app {

/// Null where the config does not ask for it.
struct Records {
  /// All outlive this.
  Records(Request& request, const Intake& intake, Learner& learner, RankTeam* team,
          const Progress& progress);

  /// `limit`: frames to train on; 0: no limit.
  engine::PipelineOptions pipeline_options(Learner& learner, std::int64_t limit);

  Observers observers;
  RunLog log;
  Callback callback;
  std::unique_ptr<VideoOut> video;
  std::unique_ptr<FrameLog> lines;
  std::unique_ptr<engine::ActionLog> actions;
  std::unique_ptr<TraceCounters> counters;
  std::unique_ptr<Alerts> alerts;
  std::unique_ptr<AlertWatch> alert_watch;
  std::optional<io::FolderClaim> claim;  ///< no other run may write to the checkpoints' folder
  CheckpointFiles checkpoints;
  std::unique_ptr<engine::Checkpointer> checkpointer;
  WriteWatch writes;

 private:
  void raise_alerts(const Config& config, const Intake& intake, const engine::Trainer& trainer);
};

}  // namespace millrace::app
