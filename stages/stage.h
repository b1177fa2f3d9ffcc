#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "stages/auxiliary_head.h"
#include "stages/bytes.h"
#include "stages/correction.h"
#include "stages/loss.h"
#include "stages/network.h"
#include "stages/optimizer.h"
#include "stages/parameters.h"

namespace millrace::stages {

using Tensors = std::vector<at::Tensor>;

/// Autograd's graph of some modules' forward, between detached tensors.
struct SegmentGraph {
  Tensors inputs;       ///< leaves
  Tensors outputs;      ///< with their graph; only the loss, if the segment ends in it
  at::Tensor compared;  ///< in that case, the loss's prediction, with its graph
  Tensors roots;        ///< outputs with gradients, and those, between the two parts of a backward
  Tensors gradients;
};

/// A sample's data from forward to backward.
struct Activations {
  Tensors inputs;  ///< tensors that cross the cut before the stage, as in Network::crossing()
  std::vector<Quantized> stored;  ///< the inputs after store()
  Tensors outputs;     ///< what crosses the cut after it (last stage: the prediction); no graph
  at::Tensor target;   ///< last stage only
  at::Tensor loss;     ///< last stage only: scalar, no graph
  int buffer = 0;      ///< the weight buffer that the forward used
  bool local = false;  ///< the graphs end in an auxiliary head's loss
  std::vector<SegmentGraph> graphs;  ///< empty: not stored, or used up
};

struct StageRange {
  int begin = 0;  ///< first module
  int end = 0;    ///< one past the last
  bool first = true;
  bool last = true;
};

/// Requirements of the schedule, and the correction.
struct StageOptions {
  /// Weight versions to store; version n: after n updates. 1: updates are in place, and a backward
  /// sees the current weights; more: an update writes the oldest's buffer, and a backward sees the
  /// weights of its own forward.
  int versions = 1;
  /// The backward has two parts: each module has its own graph, so no work is repeated.
  bool split = false;
  /// A forward stores only its input; recompute() repeats the rest.
  bool recompute = false;
  /// For gradients that are as old as `delay`.
  CorrectionSpec correction;
  Delay delay;
  /// Pictures enter in channels-last layout, which activations then have, too, at every stage and
  /// regardless of Network::channels_last(): for step programs, whose kernels prefer it.
  bool channels_last = false;
  LossSpec loss;  ///< of the last stage and auxiliary heads
  /// With deep supervision: stages recompute from inputs that they have stored in 8 bits.
  bool stores_inputs = false;
};

constexpr std::int64_t kNewest = -1;

struct Adding {
  bool first = true;    ///< since the last update: overwrites the sum
  bool retain = false;  ///< preserve the activations for another backward
};

/// A new version of the weights: the buffer it is computed from, the one it is written to, and the
/// gradients since the previous version.
struct Change {
  int from = 0, to = 0;
  int count = 0;     ///< gradients summed
  int sum = 0;       ///< index in sums()
  bool head = true;  ///< whether an auxiliary head has gradients, too: else it makes no step
};

/// Forward, backward and update of modules [begin, end). Knows nothing of threads, links, steps or
/// frames. Its computations are functions of weight buffers, so they can be recorded once and
/// replayed; the host counts buffers and gradients separately. Thread-bound, but see update().
class Stage {
 public:
  Stage(std::shared_ptr<const Network> network, StageRange range, const OptimizerSpec& optimizer,
        const at::TensorOptions& tensors, StageOptions options = {});

  // Counts: version n of the weights, after n updates, is in buffer n mod versions.

  /// Throws std::logic_error if `version` is not stored.
  int buffer_of(std::int64_t version) const;
  int newest_buffer() const { return int(newest_ % options_.versions); }
  /// Counts a gradient; returns whether it is the first since the last update.
  bool count_gradient() { return added_++ == 0 && !has_local_; }
  /// Records that the sum begins with a local gradient, which counts as part of the next one.
  void count_local() { has_local_ = true; }
  /// Counts a version from the gradients counted so far, and restarts their count.
  Change advance();
  /// Counts an update; returns the factor on the optimizer's rate.
  double next_rate();
  /// After a roll-back: halves the rate, or takes a tenth if it has not recovered from the last
  /// one. It doubles again every 50 updates.
  void back_off() { rate_ *= rate_ < 1 ? 0.1 : 0.5; }
  /// The present factor from back_off().
  double backed_off() const { return rate_; }
  void set_backed_off(double rate) { rate_ = rate; }
  /// Sets a further factor on the rate.
  void set_rate(double factor) { asked_rate_ = factor; }
  /// The optimizer's rate with all of these factors, but without the correction's.
  double learning_rate() const {
    return spec_.lr * rate_ * asked_rate_ * scheduled_rate(spec_, updates_);
  }
  void reset_count() {
    newest_ = added_ = 0;
    has_local_ = false;
  }

  /// `inputs` of a forward, and a target, detached and in the layout that the stage computes in.
  Tensors entering(const Tensors& inputs) const;
  at::Tensor entering_target(const at::Tensor& target) const { return entering(target, false); }
  /// Runs the modules at the weights in `buffer`. `inputs`: each [1,C,H,W]. The last stage, and
  /// stages with an auxiliary head, also take the loss against `target`; undefined: see compare().
  Activations forward(const Tensors& inputs, const at::Tensor& target = {}, int buffer = 0) const;
  /// If stores_inputs(): preserves the inputs of a forward's `activations` for recompute(), so that
  /// upstream may overwrite its own.
  void store(Activations& activations) const;
  /// Takes forward()'s loss against a late `target`; before backward(), and after recompute().
  void compare(Activations& activations, const at::Tensor& target) const;
  /// Restores the graphs of `activations`, at the weights of their forward; with deep supervision,
  /// at the newest, and without the auxiliary head.
  void recompute(Activations& activations) const;
  /// Accumulates the weights' gradient of the auxiliary head's loss, with deep supervision.
  /// `activations`: of a forward; they are reduced to what recompute() needs, unless retained.
  void backward_local(Activations& activations, Adding adding = {});
  /// Backpropagates `output_gradients` (ignored by the last stage, which uses its loss) through
  /// `activations`, which are consumed unless retained. Accumulates the weights' gradient for the
  /// next update. Returns the inputs' gradients; {} for the first stage.
  Tensors backward(Activations& activations, const Tensors& output_gradients, Adding adding = {});
  /// backward() in two parts, if the stage is `split`.
  Tensors backward_input(Activations& activations, const Tensors& output_gradients,
                         Adding adding = {});
  void backward_weight(Activations& activations, Adding adding = {});
  /// Applies the mean of the gradients; with replicas, of all of theirs, which must be complete and
  /// unchanged until each has updated (they may do so concurrently). If it is not finite, leaves
  /// the weights unchanged and increments `skipped`. `rate`: next_rate(). Both are 0-dim, double
  /// and float, on the stage's device: a GPU does not synchronize with the host.
  void update(const Change& change, const at::Tensor& rate, at::Tensor& skipped);
  void copy_weights(int from, int to);
  /// Copies the weights of buffer `from` and the optimizer's state; two snapshots exist.
  void take_snapshot(int from);
  /// Writes the older snapshot to buffer `to` and the optimizer's state.
  void restore_snapshot(int to);
  /// All accumulated gradients, an auxiliary head's, too; aliases.
  Tensors accumulated() const;
  void fill_gradients(double value);

  /// Whether the stage learns from an auxiliary head's loss (or is the last of stages that do), so
  /// that gradients are fresh and none is passed on.
  bool learns_locally() const { return options_.correction.kind == "local"; }
  /// Whether the stage learns from an auxiliary head's loss and the gradient from downstream.
  bool supervised() const { return head_ && !learns_locally(); }
  /// Whether store() has an effect: the first stage's inputs are the samples in flight.
  bool stores_inputs() const { return supervised() && !range_.first && options_.stores_inputs; }
  bool takes_target() const { return range_.last || head_; }
  /// Has updates apply the mean over replicas: `sums` are theirs, in the order of their samples,
  /// including this one's. They must outlive it in place; those on another device are copied.
  void replicate(std::vector<const Tensors*> sums);
  /// Accumulated gradients, flat and laid out as the weights. With replicas two alternate, since
  /// another may still read the sum that the last update applied.
  const Tensors& sums() const { return gradients_; }
  /// Index of the sum that the next update applies.
  int sum() const { return int(newest_ % std::int64_t(gradients_.size())); }

  /// Copies of the weights by name and of the optimizer's state as "optimizer.NAME.PARAMETER", so
  /// that a checkpoint is valid for any cut.
  StateDict checkpoint() const;
  /// Takes weights, and optimizer state if there is some, from a checkpoint(). Throws
  /// std::invalid_argument for weights that are missing or of another shape.
  void restore(const StateDict& state);
  /// Overwrites parameters that are fixed, and so equal in every version. Other names are ignored.
  void set_fixed(const StateDict& state);

  Parameters& parameters() { return versions_[newest_buffer()]; }
  const Parameters& parameters() const { return versions_[newest_buffer()]; }
  const StageRange& range() const { return range_; }
  const Network& network() const { return *network_; }
  /// [parameter]: the gradients in the last update, before replicas' sums. Until the next backward.
  const Tensors& gradients() const {
    return gradient_views_[std::size_t(newest_ + 1) % gradients_.size()];
  }
  const StageOptions& options() const { return options_; }
  /// Bytes of one version of the weights, of the optimizer's state, and of accumulated gradients.
  std::int64_t weight_bytes() const { return std::int64_t(parameters().flat().nbytes()); }
  std::int64_t optimizer_bytes() const;
  std::int64_t gradient_bytes() const;

 private:
  /// Modules with one autograd graph.
  struct Segment {
    int begin = 0, end = 0;
    std::vector<int> uses;   ///< earlier modules whose outputs they use
    std::vector<int> gives;  ///< its modules whose outputs later segments use
    std::size_t first_parameter = 0;
    std::vector<std::size_t> learned;  ///< indices of its parameters that are not fixed
  };
  /// [module + 1]: gradient of the module's output.
  using Gradients = Tensors;

  std::vector<Segment> make_segments() const;
  /// Restores the head from the latest snapshot, or to zeros, if it has diverged.
  void revive_head() const;
  /// `tensor` in the layout that the stage computes in.
  at::Tensor entering(const at::Tensor& tensor, bool channels_last) const;
  void run(Activations& activations, bool keep) const;
  bool ends_in_loss(const Segment& segment, const Activations& activations) const {
    return segment.end == range_.end && (range_.last || activations.local);
  }
  Gradients backpropagate(Activations& activations, const Tensors& output_gradients, Adding adding,
                          bool with_parameters = true);
  void take_loss(Activations& activations, SegmentGraph& graph) const;
  Gradients start(const Activations& activations, const Tensors& output_gradients) const;
  Tensors backward_segment(const Segment& segment, const Activations& activations,
                           SegmentGraph& graph, Gradients& gradients, bool with_parameters,
                           bool retain);
  Tensors finish(const Activations& activations, Gradients& gradients) const;
  bool passes_on() const { return !range_.first && !learns_locally() && learns_before_; }
  Tensors wanted_of(const Segment& segment, const Activations& activations) const;
  void add_found(const Segment& segment, const Activations& activations, const Tensors& found,
                 bool first);
  Tensors lasting(int buffer) const;  ///< the contents of a snapshot; aliases
  bool keeps_count() const;
  StateDict optimizer_entries() const;  ///< named as in checkpoint(); aliases

  std::shared_ptr<const Network> network_;
  StageRange range_;
  StageOptions options_;
  std::shared_ptr<const Loss> loss_;
  std::vector<int> before_, after_;            ///< modules whose outputs cross the cuts around it
  bool learns_before_;                         ///< whether earlier stages have learned parameters
  std::vector<std::size_t> parameter_counts_;  ///< [module]
  std::vector<Segment> segments_;
  std::vector<Parameters> versions_;  ///< version n in buffer n mod their number
  std::int64_t newest_ = 0;
  OptimizerSpec spec_;
  Optimizer optimizer_;
  Tensors gradients_;  ///< sums()
  std::vector<Tensors> gradient_views_;
  int added_ = 0;                         ///< gradients since the last update
  bool has_local_ = false;                ///< a local one since the last update
  std::vector<const Tensors*> replicas_;  ///< their sums(); empty: none
  at::Tensor mean_;                       ///< of the replicas' gradients
  std::optional<Correction> correction_;  ///< none: not needed
  std::unique_ptr<AuxiliaryHead> head_;   ///< null: none
  std::int64_t updates_ = 0;              ///< counted for the rate's schedule and the correction's
  double rate_ = 1.0;                     ///< backed_off()
  double asked_rate_ = 1.0;               ///< set_rate()
  std::vector<Tensors> snapshots_;        ///< two, the older first
};

}  // namespace millrace::stages
