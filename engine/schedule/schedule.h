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
  backward_weight,  ///< the weights' gradient that backward_input leaves out
  update,           ///< apply the mean of the gradients since the last update
};
/// PyTorch's letters F, B, I and W (a backward's parts), and L local loss, R recompute, U update.
char op_letter(Op op);
const char* op_name(Op op);

/// Whether `op` uses the gradient that downstream sent.
constexpr bool takes_gradient(Op op) {
  return op == Op::backward || op == Op::backward_input;
}
/// Whether `op` adds to the weights' gradient, which is a stage's last work on a sample.
constexpr bool adds_gradient(Op op) {
  return op == Op::backward || op == Op::backward_weight;
}

/// Stage and operation imply what is received and sent; the sample says which message.
struct Action {
  Op op = Op::forward;
  int stage = 0;
  /// Whose activations it works on; update: the last sample it covers.
  std::int64_t sample = 0;
  /// backward, backward_input: the sample whose loss sent this gradient. Differs from `sample`
  /// where gradients meet a later sample's activations (partime).
  std::int64_t gradient = 0;
  /// forward: the weight version to run at, in updates; -1: the newest
  std::int64_t version = -1;

  bool operator==(const Action&) const = default;
};
/// "F3", "B4(2)" (gradient of sample 2), "F3^1" (at version 1), "U3"; with the stage, "2F3".
std::string action_text(const Action& action, bool with_stage);

/// `prologue` once, then `period` forever, each round `stride` samples later. When the stream ends
/// after M samples, actions on samples >= M are skipped.
struct Program {
  int replica = 0;  ///< which replica of its stages it runs; 0 if they are not replicated
  std::vector<Action> prologue;
  std::vector<Action> period;
  std::int64_t stride = 1;
  std::int64_t updates = 1;  ///< updates of a stage per period: how far its versions advance

  /// The action at `index` = 0, 1, ... of the endless list.
  Action at(std::int64_t index) const;
  /// One past the index of the last action on a sample < `samples`; 0 if there is none.
  std::int64_t end(std::int64_t samples) const;
  bool over(std::int64_t index, std::int64_t samples) const { return index >= end(samples); }
};

/// The stages that a worker runs, ascending.
std::vector<int> stages_of(const Program& program);

/// Read by engine, oracle, verifier, simulator and printer.
struct Schedule {
  std::string name;
  int stages = 1;
  std::vector<Program> workers;
  /// Samples admitted but not finished by every stage. Sample m uses slot m % slots() of every
  /// buffer, so this bounds memory and the queue before a slow stage.
  int in_flight = 1;
  /// Gradients that a worker accumulates per update. An incomplete trailing group is skipped.
  int group = 1;
  /// Workers that share each stage, each with its own weights: replica r gets the samples m with m
  /// % replicas = r, and an update applies the mean over all, so they stay equal. Empty: 1 each.
  std::vector<int> replicas;
  /// Weight versions that each stage holds; 1: a backward uses the latest weights. Empty: 1 each.
  std::vector<int> versions;
  /// With deep supervision: stages copy the inputs that they recompute from, so that the tensors at
  /// cuts are free earlier.
  bool stores_inputs = false;
  /// The version at which the stage must run `sample`; the verifier checks it. Empty: the newest.
  std::function<std::int64_t(int stage, std::int64_t sample)> version_rule;

  int slots() const { return in_flight; }
  int versions_of(int stage) const { return versions.empty() ? 1 : versions[stage]; }
  int most_versions() const;
  bool flushes() const { return group > 1 && most_versions() == 1; }
  /// Whether a gradient is as old as its weights, rather than as its sample.
  bool ages_by_version() const { return group > 1 || version_rule; }
  int replicas_of(int stage) const { return replicas.empty() ? 1 : replicas[stage]; }
  int replica_of(int stage, std::int64_t sample) const { return int(sample % replicas_of(stage)); }
  std::vector<int> replica_counts() const {
    return replicas.empty() ? std::vector<int>(std::size_t(stages), 1) : replicas;
  }
  /// Numbers all replicas of all stages in order: 0, 1, ..., replica_ids() - 1.
  int replica_id(int stage, int replica) const;
  int replica_ids() const { return replica_id(stages, 0); }
  /// Samples per update of a stage, over all its replicas.
  int samples_an_update(int stage) const { return group * replicas_of(stage); }
  /// The fewest samples that are a whole number of updates at every stage.
  std::int64_t samples_a_choice() const;
  /// How many of a stream's `samples` are worked on: an incomplete last group is not.
  std::int64_t applied(std::int64_t samples) const { return samples / group * group; }
  /// How many of a stream's `samples` the updates of every stage cover.
  std::int64_t trained(std::int64_t samples) const;
};

/// What to generate. The table entry (registry.h) says which options it uses.
struct ScheduleSpec {
  std::string schedule = "partime";  ///< name of a schedule, or a CSV file
  int stages = 2;
  int microbatches = 4;        ///< samples per update, in schedules with minibatches
  int virtual_stages = 2;      ///< interleaved: stages per worker
  bool vertical_sync = false;  ///< pipedream: every stage uses the version that stage 0 saw
  std::vector<int> replicas;   ///< pipedream: workers per stage, [stages]; empty: 1 each
  bool recompute = false;      ///< store only a sample's input; repeat the forward before the
                               ///< backward
  /// partime, pb: each stage but the last also learns from its own loss; see add_deep_supervision()
  bool deep_supervision = false;
};

/// The last sample in all workers' `list`, prologue or period; -1: there is none.
std::int64_t last_sample(const Schedule& schedule, std::vector<Action> Program::*list);

/// The worker that runs each replica, by replica_id.
std::vector<int> workers_of_replicas(const Schedule& schedule);

/// "stage 0"; "stage 0.1" where stages have replicas; "worker 0" where workers have several stages.
std::vector<std::string> worker_names(const Schedule& schedule);

/// What a stage computes besides forward, backward and update.
struct StageNeeds {
  bool split = false;      ///< separate gradients of weights and input
  bool recompute = false;  ///< repeat the forward before the backward
  bool local = false;      ///< the gradient of its own loss
};
std::vector<StageNeeds> stage_needs(const Schedule& schedule);

/// [stage]: the first sample that goes backward there; samples before it end with their forward.
std::vector<std::int64_t> first_backwards(const Schedule& schedule);

/// For each stage in the steady state: frames between the sample whose loss made a gradient and the
/// sample it is applied on; if ages_by_version(), frames in updates between the gradient's weights
/// and the newest, 0 if a minibatch runs at one version and then updates it. `own_losses`: if each
/// stage learned only from its own loss on its own sample.
std::vector<std::int64_t> gradient_ages(const Schedule& schedule, bool own_losses = false);

/// Makes every stage store only a sample's input and repeat its forward before its backward: costs
/// a forward's time, saves all but one sample's activations (Chen et al., arXiv 1604.06174; GPipe).
void add_recompute(Schedule& schedule);

/// Adds a backward_local after each forward that precedes an update, and a recompute before each
/// backward, at every stage but the last. An update there applies the fresh gradient of the stage's
/// own loss on the newest sample and the delayed one from downstream on an older sample, both at
/// the current weights. For schedules with one weight version and an update per sample.
void add_deep_supervision(Schedule& schedule);

}  // namespace millrace::engine
