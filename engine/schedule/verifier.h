#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/schedule/schedule.h"

namespace millrace::engine {

struct Fault {
  std::int64_t clock = 0;  ///< actions done by all workers before it
  int worker = 0;
  Action action;
  std::string what;

  /// "schedule gpipe, clock 12, worker 1, 1B0: ...".
  std::string text(const std::string& schedule) const;
};

/// Proves a schedule before anything starts: without a fault the engine ends, and its numbers do
/// not depend on timing. Walks it as the engine would, over its prologue and enough periods to
/// reuse every slot and weight version. Returns the first fault: a deadlock; a sample that a stage
/// forwards or takes back twice, never or out of order; a gradient that meets another sample's; a
/// weight version that is not the rule's, does not exist yet or no longer; an update with too few
/// or too many gradients; a slot that some timing could overwrite before its last read.
std::optional<Fault> verify(const Schedule& schedule);

}  // namespace millrace::engine
