#pragma once

#include <memory>
#include <string>

#include "engine/trainer/checkpointer.h"
#include "io/files/whole_file.h"
#include "tools/app/checkpoint_files.h"
#include "tools/app/learner.h"
#include "tools/app/request.h"

namespace millrace::app {

/// Saves what is learned: checkpoints during a run and at its end, and weights. Main thread, but
/// for error().
class Checkpoints {
 public:
  /// `team`: the other ranks, or null. All arguments outlive this.
  Checkpoints(const Request& request, const Progress& progress, const Learner& learner,
              RankTeam* team);

  /// Writes the last checkpoint, unless the run has none. Throws std::runtime_error.
  void finish();
  void write_weights(const std::string& path) const;
  /// Why checkpoints can't be written now; "": they can, or there are none. Any thread.
  std::string error() const { return writer ? writer->error() : ""; }

  std::unique_ptr<engine::Checkpointer> writer;  ///< null: the run has no checkpoints

 private:
  stages::Metadata about_final() const;

  const Request& request_;
  const Progress& progress_;
  const Learner& learner_;
  RankTeam* const team_;
  io::FolderClaim claim_;  ///< locks the folder against other runs
  CheckpointFiles files_;
};

}  // namespace millrace::app
