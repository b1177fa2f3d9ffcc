// What a network costs on this machine: its modules, a schedule's stages, messages.
#pragma once

#include <vector>

#include "engine/pipeline/exchange.h"
#include "engine/plan/profile.h"
#include "engine/trainer/trainer_options.h"

namespace millrace::engine {

struct ProfilerOptions {
  int repeats = 9;  ///< passes after two that warm up, at least
  /// Passes at most: more than `repeats` are made until every time's median is known to 5 %.
  int most_repeats = 9;
  Device device;  ///< where the modules run; hand-offs are between CPU cores
  /// Keep the other usable cores busy with the same network meanwhile, as a pipeline would.
  bool neighbours = false;
  bool recorded = false;  ///< as recorded steps do it; else operator by operator
  bool parts = false;     ///< of modules that ranks may share, too; on a core
};

/// Times each module's forward, input gradient, weight gradient and update on the activations that
/// reach it from a sample, and counts its bytes. `options`: network, sample (every size known),
/// optimizer and numerics count. Measures on a thread of its own. Throws std::invalid_argument for
/// a device this build can't use.
plan::Profile measure_profile(const TrainerOptions& options, const ProfilerOptions& how = {});

/// What handing a message of some sizes from one core to another takes, one way: the token, and the
/// bytes as the receiver's core reads them. A size whose time does not stand out from its noise
/// has no point. Empty with fewer than two cores.
plan::HandOff measure_hand_off();

/// What adding up takes the ranks of `exchange`, by the bytes that each sends: from when all have
/// their parts. All call it at once.
plan::HandOff measure_sums(Exchange& exchange);

/// Speed of the whole network on 1, 2, ... cores against one, in turns until it is known to 10 %,
/// or for some seconds a count of cores; by `programs`, or by operators. `options`: as above.
std::vector<plan::Measured> measure_thread_speedup(const TrainerOptions& options, bool programs);

/// Has every worker of the schedule do its own actions in their order, as many workers at once as
/// there are cores, each on its own core, for `seconds` and at least a few rounds of its period:
/// with recorded steps or eagerly, as `options` would run. Nobody waits for anybody: what
/// neighbours send was made beforehand and lies in the slots. What is measured is hence the stages'
/// own work, on as many slots and versions as the schedule keeps and with the cores beside it busy,
/// and nothing of how workers wait for each other. Times are medians in milliseconds; a backward
/// that is not in two parts stands as the weights' gradient. Bytes: messages, weights, optimizer's
/// state. `options`: with cut and weights; CPU cores alone, no replicas. Blocks; uses threads of
/// its own. Throws std::invalid_argument, as schedule_of() does.
std::vector<plan::StageCosts> measure_stages(const TrainerOptions& options, double seconds);

}  // namespace millrace::engine
