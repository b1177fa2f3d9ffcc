// What a run goes on from.
#pragma once

#include <cstdint>
#include <string>

#include "stages/safetensors.h"

namespace millrace::app {

/// The checkpoint of an earlier run.
struct Resumed {
  std::string path;         ///< "": it starts anew
  std::int64_t frames = 0;  ///< that the checkpoint was made after
  std::string note;         ///< why it is not the newest; "": it is
};

/// What a checkpoint says of the frames that it was made after; 0: nothing.
std::int64_t frames_of(const stages::Metadata& metadata);

/// A line on optimizer state in `kept` that a run whose checkpoints hold `wanted` can't take, and
/// on what it misses; "" if all fits, or none was kept.
std::string unfit_state(const stages::StateDict& kept, const stages::StateDict& wanted);

}  // namespace millrace::app
