// The choice of everything at once: schedule, minibatch, recomputing, tensor x copies x width, cut.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/plan/outcome.h"

namespace millrace::engine::plan {

/// Nothing fits. The message is one line and names what binds.
struct PlanError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What may be chosen from. Every list is tried against every other.
struct Request {
  Machine machine;
  std::vector<std::string> schedules = {"partime"};
  /// Samples that make an update, for schedules with minibatches; copies share them.
  std::vector<int> microbatches = {4};
  std::vector<int> virtual_stages = {2};  ///< interleaved
  bool recompute = false;                 ///< may activations be computed again
  bool replicas = false;                  ///< may single stages be replicated
  bool threads = false;                   ///< may a stage take several cores
  int most_tensor = 1;                    ///< devices that may share a module
  int most_copies = 1;                    ///< pipelines side by side
  int stages = 0;                         ///< exactly so many; 0: as are best
  double fps = 0;                         ///< F for the rule T/N < 1/F; 0: no rule
};

struct Plan {
  Method method;
  Cut cut;
  Outcome outcome;
};

struct Planned {
  /// The best plan of each method that fits, best first: by time a sample, then memory, then the
  /// oldest gradient. Never empty.
  std::vector<Plan> ranked;
  /// The best other cut for the best plan's method; none if there is no other.
  std::optional<Cut> next_cut;
};

/// Tries every method of the request, each with its exact best cut. For flushing schedules the cut
/// minimises the slowest stage, and methods are compared by the whole minibatch; without replicas
/// they use all devices: p x t x d = n. interleaved cuts chunks so that the slowest chunk is
/// fastest, and its memory is checked afterwards. Throws PlanError if nothing fits,
/// std::invalid_argument for a request that makes no sense.
Planned make_plan(const Profile& profile, const Request& request);

}  // namespace millrace::engine::plan
