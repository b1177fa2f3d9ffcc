// The schedule language: who does what, in which order, for which sample. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace millrace::engine {

enum class Op : std::uint8_t {
  forward,    ///< receive the sample from upstream, run the modules, send on (last stage: the loss)
  recompute,  ///< run the modules once more on the kept input, to have activations again
  backward,   ///< receive a gradient from downstream, backpropagate, send the input's gradient on
  backward_input,   ///< the same, leaving the weights' gradient for later
  backward_weight,  ///< the weights' gradient that backward_input left
  update,           ///< apply the mean of the gradients since the last update
};

/// Whether `op` meets the gradient that downstream sent.
constexpr bool takes_gradient(Op op) {
  return op == Op::backward || op == Op::backward_input;
}
/// Whether `op` adds to the weights' gradient, and so is the stage's last work on a sample.
constexpr bool adds_gradient(Op op) {
  return op == Op::backward || op == Op::backward_weight;
}

/// One action of a worker. Receiving and sending are implied by stage and operation, which fix
/// the neighbour; the sample fixes which message.
struct Action {
  Op op = Op::forward;
  int stage = 0;
  std::int64_t sample =
      0;  ///< forward, backward: whose activations; update: the last one it covers
  /// backward, backward_input: the gradient that downstream made in its own backward of this
  /// sample; equal to `sample` unless gradients meet the activations of a later sample (partime).
  std::int64_t gradient = 0;
  /// forward: how many updates made the weights it runs at; -1: whatever is newest.
  std::int64_t version = -1;

  bool operator==(const Action&) const = default;
};

/// A worker's actions: `prologue` once, then `period` for ever, its samples moving on by `stride`
/// each time round. When the stream ends after M samples, actions on samples >= M are left out.
struct Program {
  int replica = 0;  ///< of its stages; 0 where they are not replicated
  std::vector<Action> prologue;
  std::vector<Action> period;
  std::int64_t stride = 1;
  std::int64_t updates = 1;  ///< a stage makes in one period: what versions move on by

  /// The action at `index` = 0, 1, ... of the endless list.
  Action at(std::int64_t index) const;
  /// One past the index of the last action on a sample < `samples`; 0 if there is none.
  std::int64_t end(std::int64_t samples) const;
  bool over(std::int64_t index, std::int64_t samples) const { return index >= end(samples); }
};

/// Stages that `program` acts on, ascending.
std::vector<int> stages_of(const Program& program);

/// A schedule as data: everything that reads it (engine, oracle, printer) shares one meaning.
struct Schedule {
  std::string name;
  int stages = 1;
  std::vector<Program> workers;
  /// Samples admitted and not yet finished by every stage. A sample uses slot (sample % slots()) of
  /// every buffer, so this bounds memory and keeps frames from piling up behind a slow stage.
  int in_flight = 1;
  /// Gradients that a worker adds up for an update; a trailing group of samples that the stream
  /// cannot fill is not worked on.
  int group = 1;
  /// Workers that share each stage, each with weights of its own: replica r has the samples m with
  /// m mod replicas = r, and an update applies the mean over all of them, so that they stay equal.
  /// Empty: 1 everywhere.
  std::vector<int> replicas;

  /// Versions of the weights each stage keeps; 1: updates are in place, so that a backward sees the
  /// weights as they are then. Empty: 1 everywhere.
  std::vector<int> versions;

  /// The version that the rule has `sample` run at; empty: whatever is newest then. What the
  /// verifier holds the forwards' versions against.
  std::function<std::int64_t(int stage, std::int64_t sample)> version_rule;

  int slots() const { return in_flight; }
  int versions_of(int stage) const { return versions.empty() ? 1 : versions[stage]; }
  int replicas_of(int stage) const { return replicas.empty() ? 1 : replicas[stage]; }
  /// The replica of `stage` that has `sample`.
  int replica_of(int stage, std::int64_t sample) const { return int(sample % replicas_of(stage)); }
  std::vector<int> replica_counts() const {
    return replicas.empty() ? std::vector<int>(std::size_t(stages), 1) : replicas;
  }
  /// A number for each replica of each stage, in order: 0, 1, ..., replica_ids() - 1.
  int replica_id(int stage, int replica) const;
  int replica_ids() const { return replica_id(stages, 0); }
  /// Samples that an update of `stage` covers, over all of its replicas.
  int samples_an_update(int stage) const { return group * replicas_of(stage); }
  /// Least number of samples that whole updates of every stage cover.
  std::int64_t samples_a_choice() const;
  /// Samples that are worked on when the stream holds `samples`; of them, updates that would cover
  /// later ones are left out.
  std::int64_t applied(std::int64_t samples) const { return samples / group * group; }
  /// Samples that every stage's updates cover when the stream holds `samples`.
  std::int64_t trained(std::int64_t samples) const;
};

/// Everything that says which schedule is wanted. An entry of the table (registry.h) says which of
/// these its generator takes.
struct ScheduleSpec {
  std::string schedule = "partime";  ///< its name, or a CSV file
  int stages = 2;
  int microbatches = 4;        ///< samples an update, in schedules that have minibatches
  int virtual_stages = 2;      ///< interleaved: stages a worker
  bool vertical_sync = false;  ///< pipedream: every stage uses the version that stage 0 saw
  std::vector<int> replicas;   ///< pipedream: workers a stage, [stages]; empty: 1 everywhere
  bool recompute = false;      ///< keep a sample's input alone, and run forward again to go back
};

/// The worker of each replica.
std::vector<int> workers_of_replicas(const Schedule& schedule);

/// What the text asks of a stage beyond forward, backward and update.
struct StageNeeds {
  bool split = false;      ///< the weights' gradient apart from the input's
  bool recompute = false;  ///< activations are made again before going back
};
StageNeeds needs_of(const Schedule& schedule, int stage);

/// By stage: the first sample that goes backward there. A stage is done with earlier ones after
/// their forward.
std::vector<std::int64_t> first_backwards(const Schedule& schedule);

/// By stage, in the steady state: how many frames the stage has moved on since the sample whose
/// loss made a gradient, when the gradient is applied. 0 where all of a minibatch runs at one
/// version and is applied to it.
std::vector<std::int64_t> gradient_ages(const Schedule& schedule);

/// The same for gradients of losses that the stage takes itself, of its own sample: how far it has
/// moved on beyond that sample.
std::vector<std::int64_t> own_gradient_ages(const Schedule& schedule);

/// Has every stage keep a sample's input alone and run forward once more before it goes back, for a
/// forward's time and the memory of one sample's activations (Chen et al., arXiv 1604.06174;
/// GPipe).
void add_recompute(Schedule& schedule);

/// The schedule that `spec` names: an entry of the table, or a CSV file, which then says how many
/// microbatches there are. Throws std::invalid_argument for an unknown name, stages < 1, or options
/// that the schedule cannot have (those it has no use for are ignored).
Schedule make_schedule(const ScheduleSpec& spec);
inline Schedule make_schedule(const std::string& name, ScheduleSpec spec) {
  spec.schedule = name;
  return make_schedule(spec);
}

/// The name of every entry in the table, in order.
const std::vector<std::string>& schedule_names();

}  // namespace millrace::engine
