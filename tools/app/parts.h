#pragma once

#include <memory>

#include "tools/app/console.h"
#include "tools/app/outputs/records.h"

namespace millrace::app {

/// The parts of a run in the order that a frame meets them; each is built from those before it.
/// Ready to learn once constructed. Thread-bound, except progress.stopping.
struct RunParts {
  /// Checks config and options, then opens the source. Throws as Run does.
  RunParts(const Config& given, RunOptions options);

  engine::FrameCounts frames() { return intake.frames(learner.trainer.monitor().tally().counts()); }

  /// Adds the other ranks' parts to `state`, learned here.
  stages::StateDict with_other_ranks(stages::StateDict state) const {
    return team ? team->whole(std::move(state)) : state;
  }

  Request request;
  Progress progress;
  const std::unique_ptr<RankTeam> team;
  Intake intake;
  Learner learner;
  Records records;
  Console console;
};

}  // namespace millrace::app
