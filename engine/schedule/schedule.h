// The schedule language: who does what, in which order, for which sample. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace millrace::engine {

enum class Op : std::uint8_t {
  forward,    ///< receive the sample from upstream, run the modules, send on (last stage: the loss)
  recompute,  ///< run the modules again on the kept input, to restore the activations
  backward,   ///< receive a gradient from downstream, backpropagate, send the input's gradient on
  backward_input,   ///< the same, leaving the weights' gradient for later
  backward_weight,  ///< the weights' gradient that backward_input left
  update,           ///< apply the mean of the gradients since the last update
};
/// PyTorch's letters: F, B, and I and W for a backward's two parts; R recomputes, U updates.
char op_letter(Op op);
/// "forward", "backward_input".
const char* op_name(Op op);

/// Whether `op` takes the gradient that downstream sent.
constexpr bool takes_gradient(Op op) {
  return op == Op::backward || op == Op::backward_input;
}
/// Whether `op` adds to the weights' gradient: the stage's last work on a sample.
constexpr bool adds_gradient(Op op) {
  return op == Op::backward || op == Op::backward_weight;
}

/// One action of a worker. Stage and operation imply what is received and sent, and by whom; the
/// sample says which message.
struct Action {
  Op op = Op::forward;
  int stage = 0;
  /// forward, backward: whose activations; update: the last sample it covers.
  std::int64_t sample = 0;
  /// backward, backward_input: the sample whose backward downstream made the gradient; equal to
  /// `sample` unless gradients meet the activations of a later sample (partime).
  std::int64_t gradient = 0;
  /// forward: how many updates made its weights; -1: the newest.
  std::int64_t version = -1;

  bool operator==(const Action&) const = default;
};
/// "F3", "B4(2)" (gradient of sample 2), "F3^1" (at version 1), "U3"; with its stage, "2F3".
std::string action_text(const Action& action, bool with_stage);

/// A worker's actions: `prologue` once, then `period` forever, each round `stride` samples later.
/// When the stream ends after M samples, actions on samples >= M are left out.
struct Program {
  int replica = 0;  ///< of its stages; 0 if they are not replicated
  std::vector<Action> prologue;
  std::vector<Action> period;
  std::int64_t stride = 1;
  std::int64_t updates = 1;  ///< of a stage in one period: by so many its versions rise

  /// The action at `index` = 0, 1, ... of the endless list.
  Action at(std::int64_t index) const;
  /// One past the index of the last action on a sample < `samples`; 0 if there is none.
  std::int64_t end(std::int64_t samples) const;
  bool over(std::int64_t index, std::int64_t samples) const { return index >= end(samples); }
};

/// Stages that `program` acts on, ascending.
std::vector<int> stages_of(const Program& program);

/// A schedule as data; engine, oracle, verifier, simulator and printer read the same list.
struct Schedule {
  std::string name;
  int stages = 1;
  std::vector<Program> workers;
  /// Samples admitted and not yet finished by every stage. Sample m uses slot m % slots() of every
  /// buffer, so this bounds memory and keeps frames from piling up behind a slow stage.
  int in_flight = 1;
  /// Gradients that a worker adds up for an update. A trailing group that the stream cannot fill is
  /// not worked on.
  int group = 1;
  /// Workers that share each stage, each with its own weights: replica r has the samples m with
  /// m % replicas = r, and an update applies the mean over all of them, so they stay equal.
  /// Empty: 1 everywhere.
  std::vector<int> replicas;
  /// Weight versions that each stage keeps; 1: updates are in place, so a backward sees the weights
  /// as they are then. Empty: 1 everywhere.
  std::vector<int> versions;
  /// The weight version that `sample` must run at; empty: the newest. The verifier checks the
  /// forwards against it.
  std::function<std::int64_t(int stage, std::int64_t sample)> version_rule;

  int slots() const { return in_flight; }
  int versions_of(int stage) const { return versions.empty() ? 1 : versions[stage]; }
  int most_versions() const;
  /// Whether the pipeline runs empty at each update.
  bool flushes() const { return group > 1 && most_versions() == 1; }
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
  /// The fewest samples that complete updates of every stage cover.
  std::int64_t samples_a_choice() const;
  /// Samples that are worked on when the stream holds `samples`. Updates that would cover later
  /// ones are left out.
  std::int64_t applied(std::int64_t samples) const { return samples / group * group; }
  /// Samples that every stage's updates cover when the stream holds `samples`.
  std::int64_t trained(std::int64_t samples) const;
};

/// Which schedule to make. An entry of the table (registry.h) says which options its generator
/// takes.
struct ScheduleSpec {
  std::string schedule = "partime";  ///< its name, or a CSV file
  int stages = 2;
  int microbatches = 4;        ///< samples an update, in schedules that have minibatches
  int virtual_stages = 2;      ///< interleaved: stages a worker
  bool vertical_sync = false;  ///< pipedream: every stage uses the version that stage 0 saw
  std::vector<int> replicas;   ///< pipedream: workers a stage, [stages]; empty: 1 everywhere
  bool recompute = false;      ///< keep a sample's input alone, and run forward again to go back
};

/// By replica_id: the worker that runs it.
std::vector<int> workers_of_replicas(const Schedule& schedule);

/// "stage 0"; "stage 0.1" where stages have replicas, "worker 0" where workers have several stages.
std::vector<std::string> worker_names(const Schedule& schedule);

/// What a stage must do beyond forward, backward and update.
struct StageNeeds {
  bool split = false;      ///< the weights' gradient apart from the input's
  bool recompute = false;  ///< run forward again before going back
};
/// By stage.
std::vector<StageNeeds> stage_needs(const Schedule& schedule);

/// By stage: the first sample that goes backward there. The stage is done with earlier ones after
/// their forward.
std::vector<std::int64_t> first_backwards(const Schedule& schedule);

/// By stage, in the steady state: frames between the sample whose loss made a gradient and the
/// sample that the gradient is applied on. 0 if a minibatch runs at one version and updates it.
std::vector<std::int64_t> gradient_ages(const Schedule& schedule);

/// The same for gradients of the stage's own loss on its own sample.
std::vector<std::int64_t> own_gradient_ages(const Schedule& schedule);

/// Makes every stage keep only a sample's input and run forward again before it goes back: it costs
/// a forward's time and keeps one sample's activations (Chen et al., arXiv 1604.06174; GPipe).
void add_recompute(Schedule& schedule);

/// The schedule that `spec` names: an entry of the table, or a CSV file, which then sets the number
/// of microbatches. Throws std::invalid_argument for an unknown name, stages < 1, or options that
/// the schedule cannot have. Options that it does not use are ignored.
Schedule make_schedule(const ScheduleSpec& spec);
inline Schedule make_schedule(const std::string& name, ScheduleSpec spec) {
  spec.schedule = name;
  return make_schedule(spec);
}

/// The name of every entry in the table, in order.
const std::vector<std::string>& schedule_names();

}  // namespace millrace::engine
