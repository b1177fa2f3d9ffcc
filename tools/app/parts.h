#pragma once

#include <memory>

#include "tools/app/console.h"

namespace millrace::app {

/// The parts of a run in the order in which a frame passes through them; each gets those it needs.
/// Ready to learn once constructed. Thread-bound, except progress.stopping.
struct RunParts {
  /// Checks config and options, then opens the source. Throws as Run does.
  RunParts(const Config& given, RunOptions options);

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
