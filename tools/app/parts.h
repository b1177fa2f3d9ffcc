#pragma once

#include <memory>

#include "tools/app/console.h"
#include "tools/app/learner.h"
#include "tools/app/outputs/checkpoints.h"
#include "tools/app/outputs/live_view.h"
#include "tools/app/outputs/records.h"

namespace millrace::app {

/// The parts of a run in the order in which a frame passes through them; each uses those before it.
/// Ready to learn once constructed. Thread-bound, except progress.stopping and frames().
struct RunParts {
  /// Checks config and options, then opens the source. Throws as Run does.
  RunParts(const Config& given, RunOptions options);

  /// All frames so far. Any thread.
  engine::FrameCounts frames() {
    engine::FrameCounts frames = intake.frames(learner.trainer.monitor().tally().counts());
    frames.rejected += learner.feed->unfit();
    return frames;
  }
  bool paused() const { return page && page->paused(); }

  Request request;
  Progress progress;
  const std::unique_ptr<RankTeam> team;
  Intake intake;
  Learner learner;
  Records records;
  Checkpoints checkpoints;
  const std::unique_ptr<LiveView> page;  ///< null: no page and no broker
  Console console;
};

}  // namespace millrace::app
