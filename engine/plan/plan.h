#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/plan/cut.h"

namespace millrace::engine::plan {

/// The search space: every combination is tried.
struct Request {
  Machine machine;
  std::vector<std::string> schedules = {"partime"};
  /// Samples per update, for schedules with minibatches; copies share them.
  std::vector<int> microbatches = {4};
  std::vector<int> virtual_stages = {2};  ///< interleaved
  bool recompute = false;                 ///< activations may be recomputed
  bool replicas = false;                  ///< single stages may be replicated
  bool threads = false;                   ///< a stage may take several cores
  int most_tensor = 1;                    ///< devices that may share a module
  int most_copies = 1;                    ///< data-parallel pipelines
  int stages = 0;                         ///< number of stages; 0: the best
  double fps = 0;                         ///< F of the rule T/N < 1/F; 0: no rule
};

struct Outcome {
  /// Milliseconds per sample over all copies, with fill and drain where a schedule flushes.
  double sample_ms = 0;
  double frames_a_second = 0;
  /// Fill and drain relative to the bottleneck's work: (p-1)/m with equal stages (GPipe, arXiv
  /// 1811.06965), (p-1)/(v m) interleaved (arXiv 2104.04473, section 2.2). 0 without a flush.
  double bubble = 0;
  double latency_ms = 0;            ///< from admission to prediction, all devices busy
  double T_ms = 0;                  ///< a sample's steps on one device, summed
  std::vector<StageMemory> memory;  ///< of one device, by stage; interleaved: by worker
  double peak_bytes = 0;
  /// [stage]; exact without replicas, otherwise as if each replica were a stage
  std::vector<std::int64_t> gradient_age;
};

struct Plan {
  Method method;
  Cut cut;
  Outcome outcome;
};

/// Asynchronous schedules take a sample every period of the slowest stage. Flushing ones take, per
/// minibatch, m periods, the other stages' steps once (fill and drain), the messages in flight, and
/// the longest update with its all-reduce. sequential adds everything up. In zb-h1 weight gradients
/// fill the drain, so that forward + input gradient - weight gradient of each other stage remains
/// (Qi et al., arXiv 2401.10241, section 2.3).
Outcome outcome_of(const Profile& profile, const CostModel& model, const Cut& cut);

/// The best plan of each method of the request, best first, by time per sample, memory, gradient
/// age; not empty. Each has its exact best cut. For flushing schedules and sequential it is the
/// best of the cuts that minimise the slowest stage, one for each number of stages (above 16, only
/// for all devices); flushing ones are compared by a complete minibatch. interleaved minimises the
/// slowest chunk, and its memory is checked afterwards. Throws std::invalid_argument for an unknown
/// schedule, an invalid request, or if nothing fits: one line that names the binding limit.
std::vector<Plan> make_plans(const Profile& profile, const Request& request);

}  // namespace millrace::engine::plan
