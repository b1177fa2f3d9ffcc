// What a run is made of.
#pragma once

#include <memory>

#include "tools/app/console.h"

namespace millrace::app {

/// Parts in the order that a frame meets them; each is made of those before it. Constructed, it is
/// ready to learn. Thread-bound but for progress.stopping.
struct RunParts {
  /// Checks config and options, then opens the source. Throws as Run.
  RunParts(const Config& given, RunOptions options);

  /// What this process has learned, with what other ranks have.
  stages::StateDict with_other_ranks(stages::StateDict state) const {
    return team ? team->whole(std::move(state)) : state;
  }

  Request request;
  Progress progress;
  const std::unique_ptr<RankTeam> team;  ///< the other ranks; null: there are none
  Intake intake;
  Learner learner;
  Records records;
  Console console;
};

}  // namespace millrace::app
