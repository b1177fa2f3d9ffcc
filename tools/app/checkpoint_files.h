// Checkpoints on disk: the last two good ones of a run.
#pragma once

#include <string>

#include "stages/safetensors.h"

namespace millrace::app {

/// The newest checkpoint of a folder and the one before it, each with a hash of all of its bytes.
/// One thread at a time.
class CheckpointFiles {
 public:
  explicit CheckpointFiles(std::string folder);

  /// Writes `state` as the newest; the newest so far becomes the one before, unless it is damaged.
  /// Throws std::runtime_error "PATH: cause"; both files are then as before. A state that is not
  /// finite is refused: it would take a good one's place.
  void write(const stages::StateDict& state, const stages::Metadata& metadata = {});

  /// Whether there is one to go on from.
  bool any() const;
  struct Loaded {
    stages::StateDict state;
    std::string path;
    std::string note;  ///< why it is not the newest; "": it is
    stages::Metadata metadata;
  };
  /// The newest that is whole. Throws stages::WeightsError "PATH: cause" if none is.
  Loaded read() const;

  static constexpr char kNewest[] = "checkpoint.safetensors";
  static constexpr char kPrevious[] = "checkpoint.previous.safetensors";

 private:
  const std::string newest_, previous_;
  bool newest_is_good_ = false;  ///< as far as this object has seen to it
};

/// A state from a safetensors file, checked: its bytes against the hash, where it holds one, and
/// each number for being finite. Throws stages::WeightsError "what is wrong", without the path.
stages::StateDict read_checked(const std::string& path, stages::Metadata* metadata = nullptr);

/// The file's bytes for `state`, with their hash beside `metadata`.
std::string to_hashed_safetensors(const stages::StateDict& state, stages::Metadata metadata = {});

}  // namespace millrace::app
