#pragma once

#include <vector>

#include "engine/pipeline/exchange.h"
#include "engine/plan/profile.h"
#include "engine/trainer/trainer_options.h"

namespace millrace::engine {

struct ProfilerOptions {
  int repeats = 9;  ///< least number of passes, after two to warm up
  /// Most passes: beyond `repeats` until every time's median is known to 5 %.
  int most_repeats = 9;
  Device device;  ///< where the modules run; hand-offs are between CPU cores
  /// Run the same network on the other usable cores meanwhile, as a pipeline would.
  bool neighbours = false;
  bool recorded = false;  ///< as recorded steps; otherwise operator by operator
  bool parts = false;     ///< modules that ranks may share, too; on a core
};

/// Times each module's forward, input gradient, weight gradient and update on its activations for a
/// sample, and counts its bytes. Uses `options`' network, sample (all sizes known), optimizer and
/// numerics. Uses another thread. Throws std::invalid_argument for an unusable device.
plan::Profile measure_profile(const TrainerOptions& options, const ProfilerOptions& how = {});

/// Hand-off times between two cores by message size, in one direction: the token, and the bytes as
/// the receiver's core reads them. Without sizes within the noise. Empty with fewer than two cores.
plan::HandOff measure_hand_off();

/// All-reduce times of `exchange`'s ranks by bytes sent, once all have their parts. Collective.
plan::HandOff measure_sums(Exchange& exchange);

/// Speed of the whole network on 1, 2, ... cores relative to one, in turns until known to 10 % or
/// for some seconds per count of cores. By `programs` or operators. `options`: see
/// measure_profile().
std::vector<plan::Measured> measure_thread_speedup(const TrainerOptions& options, bool programs);

/// Makes every worker of the schedule run its own actions in order, as many workers at once as
/// there are cores, each on its own core, for `seconds` and at least a few periods, recorded or
/// eager as `options` would run. No worker waits: the slots hold messages from neighbours that were
/// computed beforehand. So it measures the stages' own work, with the schedule's slots and versions
/// and all cores busy, but no waiting. Times are medians in milliseconds; an undivided backward
/// counts as the weights' gradient. Bytes: messages, weights, optimizer's state. `options`: with
/// cut and weights; CPU cores only, no replicas. Blocks. Throws as schedule_of().
std::vector<plan::StageCosts> measure_stages(const TrainerOptions& options, double seconds);

}  // namespace millrace::engine
