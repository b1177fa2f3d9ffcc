// What to expect of a cut under a schedule: rate, latency, memory, gradient age.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/cut.h"

namespace millrace::engine::plan {

/// All figures are predictions from a profile.
struct Outcome {
  /// Milliseconds a sample, all copies together, fill and drain included where a schedule flushes.
  double sample_ms = 0;
  double frames_a_second = 0;
  /// Fill and drain against the bottleneck's own work: (p-1)/m with equal stages (GPipe, arXiv
  /// 1811.06965), (p-1)/(v m) interleaved (arXiv 2104.04473, section 2.2). 0 without a flush.
  double bubble = 0;
  double latency_ms = 0;            ///< from admission to prediction, all devices busy
  double T_ms = 0;                  ///< a sample's steps on one device after another
  std::vector<StageMemory> memory;  ///< by stage; interleaved: by worker. Of one device
  double peak_bytes = 0;
  /// By stage. Exact where nothing is replicated; else as if each replica were a stage.
  std::vector<std::int64_t> gradient_age;
};

/// Asynchronous schedules take a sample every period of the slowest stage. Flushing ones spend m
/// periods on a minibatch, plus once the other stages' steps (fill and drain), the messages on the
/// way and the longest update with its all-reduce. sequential adds everything up. In zb-h1 weight
/// gradients fill the drain, so that forward + input gradient - weight gradient of each other stage
/// remains (Qi et al., arXiv 2401.10241, section 2.3).
Outcome outcome_of(const Profile& profile, const CostModel& model, const Cut& cut);

/// interleaved: the most chunks that worker `worker` of `workers` keeps activations of. Its warm-up
/// is 2(p - w - 1) + (v - 1)p chunks (Megatron-LM, arXiv 2104.04473, section 2.2), and one more.
int chunks_kept(int worker, int workers, int virtual_stages, int microbatches);

}  // namespace millrace::engine::plan
