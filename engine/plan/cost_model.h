#pragma once

#include <string>
#include <vector>

#include "engine/plan/machine.h"
#include "engine/schedule/registry.h"

namespace millrace::engine::plan {

/// Sums a profile's modules by stage. `cut`: where stages 1.. begin, ascending. The first module
/// has no input gradient. Throws std::invalid_argument if a stage would be empty or out of range.
std::vector<StageCosts> stage_costs(const Profile& profile, const std::vector<int>& cut);

/// The profile of one of `tensor` devices that share modules. Without Machine::sums, their
/// all-reduces use the slowest link between these devices.
Profile shared_by(Profile profile, int tensor, const Machine& machine);

/// Everything in a plan but its cut and the stages' widths. Devices = width p x tensor t x copies
/// d; a stage's replicas are among the p.
struct Method {
  std::string schedule = "partime";
  int microbatches = 1;    ///< samples of one copy per update; 1 without minibatches
  int virtual_stages = 1;  ///< interleaved: stages per worker
  bool recompute = false;  ///< store only a stage's input and repeat its forward
  int tensor = 1;          ///< devices that share each module
  int copies = 1;          ///< data-parallel pipelines, which average their gradients
  /// Whether the copies of a stage are neighbours, rather than the stages of a copy.
  bool copies_inside = false;
  int idle = 0;  ///< unused places at the end of a row

  /// The first device of `place` of `copy`, in rows of `row` places.
  int device(int place, int copy, int row) const {
    return (copies_inside ? place * copies + copy : copy * row + place) * tensor;
  }
  /// Its schedule over `stages` stages, of one copy.
  ScheduleSpec spec(int stages) const {
    return {.schedule = schedule,
            .stages = stages,
            .microbatches = microbatches,
            .virtual_stages = virtual_stages,
            .recompute = recompute};
  }
  bool operator==(const Method&) const = default;
};

/// Modules [begin, end) on `replicas` x `threads` places from `place` on. Replicas take turns with
/// samples; threads share the work on one.
struct Stage {
  int begin = 0;
  int end = 0;
  int place = 0;
  int replicas = 1;
  int threads = 1;

  int places() const { return replicas * threads; }
  bool operator==(const Stage&) const = default;
};

/// The cut in a config: where stages 1.. begin.
inline std::vector<int> begins_of(const std::vector<Stage>& stages) {
  std::vector<int> begins;
  for (std::size_t i = 1; i < stages.size(); ++i) begins.push_back(stages[i].begin);
  return begins;
}

/// A stage's milliseconds per sample, as its neighbours see it: divided by CostModel::turns().
struct StageTime {
  double work = 0;    ///< forward, backward, recomputation, its share of an update
  double agree = 0;   ///< the stage's share of the replicas' all-reduce
  double arrive = 0;  ///< activation from upstream, gradient to it
  double leave = 0;   ///< activation to downstream, gradient from it
  /// The sum of the four, or the longest of those that overlap.
  double period(Overlap overlap) const;
};

struct StageMemory {
  int versions = 1;  ///< of the weights
  int samples = 1;   ///< whose activations are held; with recompute, whose inputs
  int whole = 1;     ///< whose activations are held even with recompute
  double weights = 0;
  double optimizer = 0;  ///< one gradient of the weights and the optimizer's state
  double stash = 0;
  double replay = 0;  ///< samples to replay
  double total() const { return weights + optimizer + stash + replay; }
};

/// The costs that planning minimises, from a profile's prefix sums for one machine and method. A
/// place is `tensor` devices that act as one; a copy has places() in a row. Immutable.
class CostModel {
 public:
  /// Throws std::invalid_argument unless the devices are a multiple of tensor x copies.
  /// interleaved: a place is a worker's chunk, and places() = workers x virtual_stages.
  CostModel(const Profile& profile, const Machine& machine, const Method& method);

  int modules() const { return int(compute_.size()) - 1; }
  int places() const { return places_; }
  const Machine& machine() const { return machine_; }
  const Method& method() const { return method_; }
  const ScheduleEntry& entry() const { return entry_; }
  /// Speed of `threads` cores relative to one; 0 if the profile has no figure.
  double speedup(int threads) const;

  StageTime time(const Stage& stage) const;
  /// Forward, backward and update of modules [begin, end) at this width; part of time().work.
  double work(int begin, int end, int replicas, int threads) const;
  /// `stages`: of the pipeline, or an upper bound.
  StageMemory memory(const Stage& stage, int stages) const;
  /// Whether the schedule allows the stage there: where it flushes, each replica needs a sample;
  /// 2bw's two versions suffice only if an update covers all samples in flight, depth x replicas
  /// (arXiv 2006.09503, section 3.1).
  bool allows(const Stage& stage) const;
  StepCosts step(int begin, int end) const;
  double weight_bytes(int begin, int end) const {
    return sums_[end].bytes.weight - sums_[begin].bytes.weight;
  }

  /// [i]: forward and backward of modules [0, i).
  const std::vector<double>& compute_sums() const { return compute_; }
  /// [i]: versions x weights + optimizer + whole x stash of modules [0, i).
  std::vector<double> memory_sums(int versions, int whole) const;
  /// The inputs from which `samples` are recomputed; memory() adds them.
  double input_bytes(int begin, int samples) const;
  /// Samples between a stage and the loss: its own, and one for each turn of its replicas that fits
  /// the places behind it; N - i without replicas (PipeDream's NOAM, SOSP 2019, section 3.2).
  int depth(const Stage& stage) const;

  /// Time of a sample's messages, both ways, with upstream or downstream; 0 at the network's ends.
  double arrive_ms(const Stage& stage) const;
  double leave_ms(const Stage& stage) const;
  double activation_ms(const Stage& stage) const;
  const Link& agree_link(const Stage& stage) const;
  /// Samples of a pipeline per update of a stage with `replicas`.
  int group(int replicas) const;
  /// Samples of a minibatch that one of `replicas` gets at most.
  int samples_each(int replicas) const { return (method_.microbatches + replicas - 1) / replicas; }
  /// How many samples `replicas` work on at a time, on average: fewer if a pipeline flushes after
  /// a minibatch that is no multiple of them.
  double turns(int replicas) const {
    return entry_.flushes ? double(method_.microbatches) / samples_each(replicas) : replicas;
  }

 private:
  int device(int place, int copy) const;
  const Link& arrive_link(const Stage& stage) const;
  const Link& worst_link(int place, int other) const;

  Machine machine_;
  Method method_;
  ScheduleEntry entry_;
  std::vector<double> speedup_;
  double agree_ms_ = 0;  ///< per update, of devices that share modules
  int places_ = 1;
  std::vector<StageCosts> sums_;  ///< of modules [0, i); messages: those that cross before i
  std::vector<double> compute_;   ///< of modules [0, i): forward (twice if recomputed), backward
  std::vector<std::vector<int>> levels_;  ///< [place][place]: the worst between them in any copy
};

}  // namespace millrace::engine::plan
