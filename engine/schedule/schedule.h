// Schedules: each worker's actions on each sample, in order. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace millrace::engine {

enum class Op : std::uint8_t {
  forward,  ///< receive the sample from upstream, run the modules, send on (last stage: the loss)
  backward_local,  ///< the weights' gradient of the stage's own loss, by an auxiliary head
  recompute,       ///< run the modules again on the stored input, to restore the activations
  backward,  ///< receive a gradient from downstream, backpropagate, send the input's gradient on
  backward_input,   ///< backward without the weights' gradient
  backward_weight,  ///< the weights' gradient, which backward_input leaves out
  update,           ///< apply the mean of the gradients since the last update
};
/// Letters as in PyTorch: F, B, or I and W for a backward's two parts; L: of a local loss; R
/// recomputes, U updates.
char op_letter(Op op);
/// "forward", "backward_input".
const char* op_name(Op op);

/// Whether `op` takes the gradient that downstream sent.
constexpr bool takes_gradient(Op op) {
  return op == Op::backward || op == Op::backward_input;
}
/// Whether `op` adds to the weights' gradient: a stage's last work on a sample.
constexpr bool adds_gradient(Op op) {
  return op == Op::backward || op == Op::backward_weight;
}

/// Stage and operation imply what is received and sent, and by whom; the sample says which message.
struct Action {
  Op op = Op::forward;
  int stage = 0;
  /// Whose activations; update: the last sample it covers.
  std::int64_t sample = 0;
  /// backward, backward_input: the sample whose backward downstream sent the gradient; differs from
  /// `sample` where gradients meet a later sample's activations (partime).
  std::int64_t gradient = 0;
  /// forward: its weight version, in updates; -1: the newest.
  std::int64_t version = -1;

  bool operator==(const Action&) const = default;
};
/// "F3", "B4(2)" (gradient of sample 2), "F3^1" (at version 1), "U3"; with its stage, "2F3".
std::string action_text(const Action& action, bool with_stage);

/// `prologue` once, then `period` forever, each round `stride` samples later. When the stream ends
/// after M samples, actions on samples >= M are skipped.
struct Program {
  int replica = 0;  ///< of its stages; 0 if they are not replicated
  std::vector<Action> prologue;
  std::vector<Action> period;
  std::int64_t stride = 1;
  std::int64_t updates = 1;  ///< of a stage per period: how far its versions advance

  /// The action at `index` = 0, 1, ... of the endless list.
  Action at(std::int64_t index) const;
  /// One past the index of the last action on a sample < `samples`; 0 if there is none.
  std::int64_t end(std::int64_t samples) const;
  bool over(std::int64_t index, std::int64_t samples) const { return index >= end(samples); }
};

/// Ascending.
std::vector<int> stages_of(const Program& program);

/// A schedule as data, read by engine, oracle, verifier, simulator and printer.
struct Schedule {
  std::string name;
  int stages = 1;
  std::vector<Program> workers;
  /// Samples admitted but not finished by every stage. Sample m uses slot m % slots() of every
  /// buffer, so this bounds memory and the queue before a slow stage.
  int in_flight = 1;
  /// Gradients that a worker accumulates per update. An incomplete trailing group is skipped.
  int group = 1;
  /// Workers that share each stage, each with its own weights: replica r has the samples m with m %
  /// replicas = r, and an update applies the mean over all, so they stay equal. Empty: 1 each.
  std::vector<int> replicas;
  /// Weight versions that each stage keeps; 1: a backward sees the latest weights. Empty: 1 each.
  std::vector<int> versions;
  /// The weight version that `sample` must run at, checked by the verifier; empty: the newest.
  std::function<std::int64_t(int stage, std::int64_t sample)> version_rule;

  int slots() const { return in_flight; }
  int versions_of(int stage) const { return versions.empty() ? 1 : versions[stage]; }
  int most_versions() const;
  /// Whether the pipeline runs empty at each update.
  bool flushes() const { return group > 1 && most_versions() == 1; }
  int replicas_of(int stage) const { return replicas.empty() ? 1 : replicas[stage]; }
  int replica_of(int stage, std::int64_t sample) const { return int(sample % replicas_of(stage)); }
  std::vector<int> replica_counts() const {
    return replicas.empty() ? std::vector<int>(std::size_t(stages), 1) : replicas;
  }
  /// Numbers all replicas of all stages in order: 0, 1, ..., replica_ids() - 1.
  int replica_id(int stage, int replica) const;
  int replica_ids() const { return replica_id(stages, 0); }
  /// Over all replicas.
  int samples_an_update(int stage) const { return group * replicas_of(stage); }
  /// The fewest samples that make whole updates at every stage.
  std::int64_t samples_a_choice() const;
  /// Samples worked on if the stream holds `samples`: no update covers later ones.
  std::int64_t applied(std::int64_t samples) const { return samples / group * group; }
  /// Samples that every stage's updates cover if the stream holds `samples`.
  std::int64_t trained(std::int64_t samples) const;
};

/// Which schedule to make. Its table entry (registry.h) says which options it takes.
struct ScheduleSpec {
  std::string schedule = "partime";  ///< name of a schedule, or a CSV file
  int stages = 2;
  int microbatches = 4;        ///< samples per update, in schedules with minibatches
  int virtual_stages = 2;      ///< interleaved: stages per worker
  bool vertical_sync = false;  ///< pipedream: every stage uses the version that stage 0 saw
  std::vector<int> replicas;   ///< pipedream: workers per stage, [stages]; empty: 1 each
  bool recompute = false;      ///< keep only a sample's input; repeat forward before backward
  /// partime, pb: each stage but the last also learns from a loss of its own; see
  /// add_deep_supervision().
  bool deep_supervision = false;
};

/// The worker of each replica, by replica_id.
std::vector<int> workers_of_replicas(const Schedule& schedule);

/// "stage 0"; "stage 0.1" where stages have replicas, "worker 0" where workers have several stages.
std::vector<std::string> worker_names(const Schedule& schedule);

/// What a stage does besides forward, backward and update.
struct StageNeeds {
  bool split = false;      ///< separate gradients of weights and input
  bool recompute = false;  ///< repeat the forward before the backward
  bool local = false;      ///< the gradient of a loss of its own
};
/// The needs of each stage.
std::vector<StageNeeds> stage_needs(const Schedule& schedule);

/// For each stage, the first sample that goes backward there. Earlier ones end with their forward.
std::vector<std::int64_t> first_backwards(const Schedule& schedule);

/// For each stage, in the steady state: frames between the sample of a gradient's loss and the one
/// that the gradient is applied on. 0 if a minibatch runs at one version and updates it.
std::vector<std::int64_t> gradient_ages(const Schedule& schedule);

/// gradient_ages() for stages that learn from their own loss on their own sample.
std::vector<std::int64_t> own_gradient_ages(const Schedule& schedule);

/// Makes every stage keep only a sample's input and repeat its forward before its backward: costs a
/// forward's time, keeps one sample's activations (Chen et al., arXiv 1604.06174; GPipe).
void add_recompute(Schedule& schedule);

/// Adds a backward_local after each forward that precedes an update, and a recompute before each
/// backward, at every stage but the last: there an update applies the fresh gradient of the stage's
/// own loss on the newest sample and the delayed one from downstream on an older sample, both at
/// the current weights. For schedules with one weight version and an update per sample.
void add_deep_supervision(Schedule& schedule);

}  // namespace millrace::engine
