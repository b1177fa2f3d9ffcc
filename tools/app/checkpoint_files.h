// Checkpoints on disk: the last two intact ones of a run.
#pragma once

#include <cstdint>
#include <string>

#include "stages/safetensors.h"

namespace millrace::app {

/// Which checkpoint a run continues.
struct Resumed {
  std::string path;          ///< "": none
  std::int64_t frames = 0;   ///< trained before it was written
  std::string kernels;       ///< of a GPU, that were chosen: JSON, {task: name}; "": none
  std::string note;          ///< why it is not the newest; "": it is
  bool none_intact = false;  ///< there are checkpoints, and all are damaged
};

/// The newest checkpoint of a folder and the one before it, each with a hash of all of its bytes.
/// One thread at a time.
class CheckpointFiles {
 public:
  explicit CheckpointFiles(std::string folder);

  /// Writes `state` as the newest. The newest so far becomes the previous one, unless it is
  /// damaged. Throws std::runtime_error "PATH: cause" and then leaves both files alone. A state
  /// that is not finite is refused, since it would replace a good one.
  void write(const stages::StateDict& state, const stages::Metadata& metadata = {});

  /// Whether there is a checkpoint, intact or not.
  bool any() const;
  struct Loaded : Resumed {
    stages::StateDict state;
  };
  /// The newest intact one. Throws stages::WeightsError "PATH: cause" if there is none.
  Loaded read() const;

  /// Renames what is there, which is damaged: checkpoint.damaged, checkpoint.previous.damaged.
  void set_aside();

  static constexpr char kNewest[] = "checkpoint.safetensors";
  static constexpr char kPrevious[] = "checkpoint.previous.safetensors";

 private:
  const std::string newest_, previous_;
  bool newest_is_good_ = false;  ///< written or checked by this object
};

/// Reads a safetensors file. Checks the bytes against its hash, if it holds one, and that every
/// number is finite. Throws stages::WeightsError "what is wrong", without the path.
stages::StateDict read_checked(const std::string& path, stages::Metadata* metadata = nullptr);

/// `state` as the bytes of a file, with their hash beside `metadata`.
std::string to_hashed_safetensors(const stages::StateDict& state, stages::Metadata metadata = {});

/// One line on the optimizer state in `kept` that a run can't use and the state that it lacks; its
/// own checkpoints would hold `wanted`. "" if all fits, or none was kept.
std::string unfit_state(const stages::StateDict& kept, const stages::StateDict& wanted);

}  // namespace millrace::app
