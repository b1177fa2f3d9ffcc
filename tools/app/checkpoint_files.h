#pragma once

#include <cstdint>
#include <string>

#include "stages/safetensors.h"

namespace millrace::app {

struct Resumed {
  std::string path;          ///< "": none, but perhaps a weights file
  stages::StateDict state;   ///< until a trainer takes it
  stages::Metadata about;    ///< of either file: see about_weights()
  std::int64_t frames = 0;   ///< trained before it was written
  std::string note;          ///< why it is not the newest; "": it is
  bool none_intact = false;  ///< checkpoints exist, but all are damaged
};

/// A folder's two newest checkpoints, each with a hash of all its bytes. One thread at a time.
class CheckpointFiles {
 public:
  explicit CheckpointFiles(std::string folder);

  /// Writes `state` as the newest checkpoint; the newest so far becomes the previous one unless it
  /// is damaged. On failure, or if `state` is not finite, leaves both unchanged and throws
  /// std::runtime_error "PATH: cause".
  void write(const stages::StateDict& state, const stages::Metadata& metadata = {});

  bool any() const;
  /// The newest intact checkpoint. Throws stages::WeightsError "PATH: cause" if there is none.
  Resumed read() const;

  /// Renames damaged files: checkpoint.damaged, checkpoint.previous.damaged.
  void set_aside();

  static constexpr char kNewest[] = "checkpoint.safetensors";
  static constexpr char kPrevious[] = "checkpoint.previous.safetensors";

 private:
  const std::string newest_, previous_;
  bool newest_is_good_ = false;  ///< written or checked by this object
};

/// Reads a safetensors file. Checks its hash, if it has one, and that all numbers are finite.
/// Throws stages::WeightsError "what is wrong", without the path.
stages::StateDict read_checked(const std::string& path, stages::Metadata* metadata = nullptr);

/// One line on optimizer state in `kept` that a run can't use, or that it lacks; `wanted`: the
/// state that the run's own checkpoints hold. "" if all fits or `kept` has none.
std::string unfit_state(const stages::StateDict& kept, const stages::StateDict& wanted);

}  // namespace millrace::app
