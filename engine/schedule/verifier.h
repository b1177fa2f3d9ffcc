#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/schedule/schedule.h"

namespace millrace::engine {

struct Fault {
  std::int64_t clock = 0;  ///< actions done by all workers before it
  int worker = 0;
  Action action;
  std::string what;

  /// "schedule gpipe, clock 12, worker 1, 1B0: ..."
  std::string text(const std::string& schedule) const;
};

/// Proves a schedule before anything starts: without a fault the engine ends, and its numbers do
/// not depend on timing. Walks the prologue and enough periods to reuse every slot and weight
/// version. Returns the first fault: a deadlock; a sample that a stage forwards or takes back
/// twice, never or out of order; a gradient that meets another sample's; a weight version that
/// breaks the rule, does not exist yet or no longer; an update with too few or too many gradients;
/// a slot that some timing could overwrite before its last read.
std::optional<Fault> verify(const Schedule& schedule);

/// How many sets of tensors stages and cuts need: a sample in slot n uses set n mod s.
struct TensorSets {
  std::size_t capacity = 0;  ///< of each link: a stage waits while it has this many unread tokens
                             ///< there
  std::vector<int> inner;    ///< [stage]: activations that a forward leaves for its stage's
                             ///< backward
  std::vector<int> stored;   ///< [stage]: inputs, see Schedule::stores_inputs
  std::vector<int> activations, gradients;  ///< [cut]
};
/// The fewest sets that verify() proves safe if links hold `capacity` tokens; a multiple of
/// `capacity` if the schedule would deadlock with it. For stages whose calls block until done.
TensorSets tensor_sets(const Schedule& schedule, std::size_t capacity);
/// Adds room for what stays unread while the stream pauses, so that no stage waits for the next
/// frame: two gradients (partime, pb), or those of two minibatches.
TensorSets tensor_sets(const Schedule& schedule);
/// One set per slot at cuts, and links on which no stage ever waits.
TensorSets sets_by_slot(const Schedule& schedule);

/// Adds up to six slots if stages can then share fewer sets: slots that are equal modulo the number
/// of sets share one, which saves most if that number divides the slots.
Schedule with_fewest_sets(Schedule schedule);
/// The capacity of a link that never fills: gradients may stay unread for the age of the pipeline.
std::size_t unbounded(const Schedule& schedule);

}  // namespace millrace::engine
