// What a stage costs where it is put: the one place that knows the formulas planning minimises.
#pragma once

#include <string>
#include <vector>

#include "engine/plan/costs.h"
#include "engine/plan/profile.h"
#include "engine/schedule/registry.h"

namespace millrace::engine::plan {

/// How the devices work together: everything of a plan but its cut and the width of its stages.
/// Devices = width p x tensor t x copies d, where a stage's own replicas count as places of p.
struct Method {
  std::string schedule = "partime";
  int microbatches = 1;    ///< samples of one copy that make an update; 1 without minibatches
  int virtual_stages = 1;  ///< interleaved: stages a worker
  bool recompute = false;  ///< keep a stage's input alone, and run its forward again
  int tensor = 1;          ///< devices that share each module
  int copies = 1;          ///< pipelines side by side, which agree on their gradients
  /// Whether copies of a stage are neighbours; else the stages of a copy are.
  bool copies_inside = false;

  bool operator==(const Method&) const = default;
};

/// Modules [begin, end) on `replicas` x `threads` places from `place` on. Replicas take turns at
/// samples, a sample each; threads work on one together.
struct Stage {
  int begin = 0;
  int end = 0;
  int place = 0;
  int replicas = 1;
  int threads = 1;

  int places() const { return replicas * threads; }
  bool operator==(const Stage&) const = default;
};

/// A stage's milliseconds a sample, as its neighbours see them: what one of r replicas spends on a
/// sample counts 1/r.
struct StageTime {
  double work = 0;    ///< forward, backward, recomputing, its share of an update
  double agree = 0;   ///< its share of the replicas' all-reduce
  double arrive = 0;  ///< activation from upstream, gradient to it
  double leave = 0;   ///< activation to downstream, gradient from it
  /// What they come to: their sum, or the longest of what runs side by side.
  double period(Overlap overlap) const;
};

/// Bytes that one of a stage's devices holds.
struct StageMemory {
  int versions = 1;  ///< of the weights
  int samples = 1;   ///< whose activations are kept
  double weights = 0;
  double optimizer = 0;  ///< one gradient of the weights, and the optimizer's state
  double stash = 0;
  double replay = 0;  ///< samples kept to be learned from again
  double total() const { return weights + optimizer + stash + replay; }
};

/// Sums over a profile's modules for one machine and method. Immutable. A place is `tensor`
/// devices that act as one; a copy has places() of them in a row.
class CostModel {
 public:
  /// Throws std::invalid_argument unless the machine's devices are a multiple of tensor x copies.
  /// interleaved: a place is a chunk of a worker, and places() = workers x virtual_stages.
  CostModel(const Profile& profile, const Machine& machine, const Method& method);

  int modules() const { return int(compute_.size()) - 1; }
  int places() const { return places_; }
  const Machine& machine() const { return machine_; }
  const Method& method() const { return method_; }
  const ScheduleEntry& entry() const { return entry_; }
  /// How much faster `threads` cores are than one; 0 if the profile does not say.
  double speedup(int threads) const;

  StageTime time(const Stage& stage) const;
  /// `behind`: places of the stages downstream. A stage is as deep in flight as the samples that
  /// are between it and the loss: one with itself and one for each turn of its replicas that the
  /// places behind it can hold, which is N - i where nothing is replicated (PipeDream's NOAM, SOSP
  /// 2019, section 3.2). `stages`: how many the pipeline has, or the most it can have.
  StageMemory memory(const Stage& stage, int behind, int stages) const;
  /// Whether the schedule can have the stage there: 2bw's two versions are enough only if no more
  /// samples are in flight than make an update, depth x replicas (arXiv 2006.09503, section 3.1).
  bool allows(const Stage& stage, int behind) const;
  /// Forward, backward and update of modules [begin, end) on one place, not shared by replicas.
  StepCosts step(int begin, int end) const;
  double weight_bytes(int begin, int end) const { return weight_[end] - weight_[begin]; }

  // What a search needs, as sums over modules [0, i): a stage's costs are differences of them.
  const std::vector<double>& compute_sums() const { return compute_; }
  const std::vector<double>& update_sums() const { return update_; }
  const std::vector<double>& weight_sums() const { return weight_; }
  /// weight x weights + optimizer + samples x stash, for memory's limit.
  std::vector<double> memory_sums(int versions, int samples) const;
  /// What memory holds besides: the inputs that recomputing starts from.
  double input_bytes(int begin, int samples) const;
  /// Versions and samples kept by a stage `depth` deep.
  int depth(const Stage& stage, int behind) const;

  const Link& arrive_link(const Stage& stage) const;
  const Link& leave_link(const Stage& stage) const;
  const Link& agree_link(const Stage& stage) const;
  /// Messages across `cut` (activation there, gradient back) over `link`.
  double transfer_ms(const Link& link, int cut) const;
  /// The activation alone.
  double activation_ms(const Link& link, int cut) const { return link.ms(activation_[cut]); }
  /// Samples of a pipeline between two updates of a stage with `replicas`.
  int group(int replicas) const;

 private:
  int device(int place, int copy) const;
  const Link& worst_link(int place, int other) const;

  Machine machine_;
  Method method_;
  ScheduleEntry entry_;
  std::vector<double> speedup_;
  double agree_ms_ = 0;  ///< of those that share modules, on an update
  int places_ = 1;
  std::vector<StepCosts> steps_;                ///< sums
  std::vector<double> compute_, update_;        ///< sums: forward and backward; update
  std::vector<double> weight_, state_, stash_;  ///< sums
  std::vector<double> activation_, gradient_;   ///< that cross before a module
  std::vector<std::vector<int>> levels_;        ///< worst between two places, of any copy
};

}  // namespace millrace::engine::plan
