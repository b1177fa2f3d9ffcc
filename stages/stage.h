// A stage: consecutive modules with their weights, and what they compute for one sample.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "stages/auxiliary_head.h"
#include "stages/correction.h"
#include "stages/loss.h"
#include "stages/network.h"
#include "stages/optimizer.h"
#include "stages/parameters.h"

namespace millrace::stages {

using Tensors = std::vector<at::Tensor>;

/// Autograd's graph of some modules' forward, between tensors that are cut off from the rest.
struct SegmentGraph {
  Tensors inputs;       ///< leaves
  Tensors outputs;      ///< with their graph; of a segment that ends in a loss: the loss alone
  at::Tensor compared;  ///< of such a segment: what the loss is of, with its graph
  Tensors gradients;    ///< of the outputs, between the two parts of a backward
};

/// What a stage keeps of one sample from forward to backward.
struct Activations {
  Tensors inputs;     ///< what crosses the cut before the stage, as Network::crossing() lists it
  Tensors outputs;    ///< what crosses the cut after it (last stage: the prediction); no graph
  at::Tensor target;  ///< last stage only
  at::Tensor loss;    ///< last stage only: scalar, no graph
  int buffer = 0;     ///< which of the stage's weight buffers the forward read
  std::vector<SegmentGraph> graphs;  ///< empty: the graph was not kept, or is used up
};

/// Where a stage lies in the network.
struct StageRange {
  int begin = 0;  ///< first module
  int end = 0;    ///< one past the last
  bool first = true;
  bool last = true;
};

/// What a stage's schedule asks of it.
struct StageOptions {
  /// Weight versions kept; version n is what n updates made. With one an update is in place, and a
  /// backward sees whatever the weights have become since its forward; with more, an update writes
  /// the buffer of the oldest, and a backward sees the weights of its own forward.
  int versions = 1;
  /// Backward comes in two parts: each module gets a graph of its own, so that neither part repeats
  /// the other's work.
  bool split = false;
  /// A forward keeps its input alone; recompute() makes the rest again.
  bool recompute = false;
  /// What is done about gradients that are as old as `delay`.
  CorrectionSpec correction;
  Delay delay;
  /// Pictures enter in channels-last layout, which activations then keep, at every stage and
  /// whatever Network::channels_last() says: for step programs, whose kernels want it.
  bool channels_last = false;
  LossSpec loss;  ///< the last stage's, and auxiliary heads'
};

constexpr std::int64_t kNewest = -1;

/// How gradients are added up.
struct Adding {
  bool first = true;    ///< since the last update: they overwrite what was there
  bool retain = false;  ///< the activations can be gone back through again
};

/// A new version of the weights: the buffer that it is made of, the one that it is written to, and
/// the gradients since the version before.
struct Change {
  int from = 0, to = 0;
  int count = 0;  ///< gradients summed
  int sum = 0;    ///< where
};

/// Forward, backward and update of modules [begin, end). Knows nothing of threads, links, steps or
/// frames. What it computes is a function of weight buffers, so that work recorded once can be
/// replayed; which buffer and how many gradients, the host counts apart from that. Thread-bound,
/// but see update().
class Stage {
 public:
  Stage(std::shared_ptr<const Network> network, StageRange range, const OptimizerSpec& optimizer,
        const at::TensorOptions& tensors, StageOptions options = {});

  // The count: version n of the weights is what n updates made, and lies in buffer n mod versions.

  /// Where `version` lies. Throws std::logic_error if it is not kept.
  int buffer_of(std::int64_t version) const;
  int newest_buffer() const { return int(newest_ % options_.versions); }
  /// One more gradient is added; whether it is the first since the last update.
  bool count_gradient() { return added_++ == 0; }
  /// One more version is made, of the gradients counted so far, which are forgotten.
  Change advance();
  /// What the optimizer's rate is multiplied by in the next update, which it counts.
  double next_rate();
  /// Halves the rate after a roll-back; takes a tenth if it has not recovered from the one before.
  /// It doubles again every 50 updates.
  void back_off() { rate_ *= rate_ < 1 ? 0.1 : 0.5; }
  /// What back_off() has left of the rate.
  double backed_off() const { return rate_; }
  void set_backed_off(double rate) { rate_ = rate; }
  /// Multiplies the rate beside that, until set anew.
  void set_rate(double factor) { asked_rate_ = factor; }
  /// The optimizer's rate with all of that, but without the correction's share.
  double learning_rate() const {
    return spec_.lr * rate_ * asked_rate_ * scheduled_rate(spec_, updates_);
  }
  /// Counts versions and gradients from the start again.
  void reset_count() { newest_ = applied_ = added_ = 0; }

  // The work.

  /// Runs the modules at the weights in `buffer`. `inputs`: each [1,C,H,W]. The last stage also
  /// takes the loss against `target`, and so do stages with an auxiliary head; with none,
  /// compare() does it later.
  Activations forward(const Tensors& inputs, const at::Tensor& target = {}, int buffer = 0) const;
  /// Takes the loss of what forward() gave against `target`, which came after it; before
  /// backward(), and after recompute().
  void compare(Activations& activations, const at::Tensor& target) const;
  /// Makes the graphs of `activations` again, at the weights of their forward.
  void recompute(Activations& activations) const { run(activations, true); }
  /// Backpropagates `output_gradients` (the last stage: its loss; they are not looked at) through
  /// `activations`, which are used up unless retained; adds the weights' gradient to what the next
  /// update will apply. Returns the inputs' gradients, {} for the first stage.
  Tensors backward(Activations& activations, const Tensors& output_gradients, Adding adding = {});
  /// The same in two parts, in a stage that is `split`.
  Tensors backward_input(Activations& activations, const Tensors& output_gradients,
                         Adding adding = {});
  void backward_weight(Activations& activations, Adding adding = {});
  /// Applies the mean of the gradients. With replicas it is the mean over all of theirs, which must
  /// be complete and stay so until each has updated; they may update at once. False, and the
  /// weights stay as they are, if it is not finite. `rate`: as next_rate() gave it.
  bool update(const Change& change, double rate);
  /// The same without a question to the host: what is not finite is counted in `skipped`. `rate`
  /// and `skipped` are 0-dim, double and float, on the stage's device.
  void guarded_update(const Change& change, const at::Tensor& rate, at::Tensor& skipped);
  /// Has update() round as guarded_update() does, whose formulas are the same in another order.
  void update_as_recorded() { as_recorded_ = true; }
  void copy_weights(int from, int to);
  /// Remembers the weights of buffer `from` and the optimizer's state; two such snapshots are kept.
  void take_snapshot(int from);
  /// Writes the older snapshot to buffer `to`, with its optimizer's state.
  void restore_snapshot(int to);
  /// Sets every gradient added up so far to `value`.
  void fill_gradients(double value);

  /// Whether it learns from an auxiliary head's loss (or, the last stage, beside others that do),
  /// so that gradients are fresh and none is passed on.
  bool learns_locally() const { return options_.correction.kind == "local"; }
  /// Has updates apply the mean over replicas: `sums` are theirs, in the order of their samples,
  /// this one's among them. They outlive it, where they are; on another device they are copied.
  void replicate(std::vector<const Tensors*> sums);
  /// What gradients add up in, flat and laid out as the weights; with replicas two, in turn, since
  /// another may still read what the last update applied.
  const Tensors& sums() const { return gradients_; }
  /// Which of them the next update applies.
  int sum() const { return int(newest_ % std::int64_t(gradients_.size())); }

  /// Copies of the weights under their names and of the optimizer's state under
  /// "optimizer.NAME.PARAMETER", so that a checkpoint outlives a change of the cut.
  StateDict checkpoint() const;
  /// Takes weights, and optimizer state where `state` holds some, from what checkpoint() gave.
  /// Throws std::invalid_argument for weights that are missing or of another shape.
  void restore(const StateDict& state);

  /// The newest version.
  Parameters& parameters() { return versions_[newest_buffer()]; }
  const Parameters& parameters() const { return versions_[newest_buffer()]; }
  const StageRange& range() const { return range_; }
  const Network& network() const { return *network_; }
  /// By parameter: what the last update applied, before replicas met. Until the next backward.
  const Tensors& gradients() const {
    return gradient_views_[std::size_t(newest_ + 1) % gradients_.size()];
  }
  const StageOptions& options() const { return options_; }
  /// Bytes of one version of the weights, of the optimizer's state, and of sums of gradients.
  std::int64_t weight_bytes() const { return std::int64_t(parameters().flat().nbytes()); }
  std::int64_t optimizer_bytes() const;
  std::int64_t gradient_bytes() const;

 private:
  /// Modules that share one graph of autograd's.
  struct Segment {
    int begin = 0, end = 0;
    std::vector<int> uses;   ///< earlier modules whose outputs they use
    std::vector<int> gives;  ///< modules among them whose outputs later ones use
    std::size_t first_parameter = 0, parameters = 0;
    std::vector<std::size_t> learned;  ///< those of its parameters that are not fixed
  };
  /// Gradients of modules' outputs, by module + 1.
  using Gradients = Tensors;

  std::vector<Segment> make_segments() const;
  std::unique_ptr<AuxiliaryHead> make_head(OptimizerSpec optimizer,
                                           const at::TensorOptions& tensors) const;
  /// In the layout that the stage computes in.
  at::Tensor entering(const at::Tensor& tensor, bool channels_last) const;
  void run(Activations& activations, bool keep) const;
  bool own_loss(const Segment& segment) const {
    return segment.end == range_.end && (range_.last || head_);
  }
  void take_loss(Activations& activations, SegmentGraph& graph) const;
  Gradients start(const Activations& activations, const Tensors& output_gradients) const;
  Tensors backward_segment(const Segment& segment, SegmentGraph& graph, Gradients& gradients,
                           int buffer, bool with_parameters, bool retain);
  Tensors finish(Gradients& gradients) const;
  void add_gradients(const Segment& segment, const Tensors& gradients, bool first);
  /// Whether gradients are passed on to the stage before.
  bool passes_on() const { return !range_.first && !learns_locally() && learns_before_; }
  Tensors wanted_of(const Segment& segment, int buffer) const;
  void add_found(const Segment& segment, Tensors found, bool first);
  Tensors lasting(int buffer) const;  ///< all that a snapshot holds; aliases
  bool keeps_count() const { return !has_constant_rate(spec_) && parameters().learn(); }
  StateDict optimizer_entries() const;  ///< as checkpoint() names them; aliases

  std::shared_ptr<const Network> network_;
  StageRange range_;
  StageOptions options_;
  std::shared_ptr<const Loss> loss_;
  std::vector<int> before_, after_;            ///< modules that the cuts around it cross
  bool learns_before_;                         ///< any parameter of the stages before it
  std::vector<std::size_t> parameter_counts_;  ///< a module
  std::vector<Segment> segments_;
  std::vector<Parameters> versions_;  ///< version n in buffer n mod their number
  std::int64_t newest_ = 0;
  OptimizerSpec spec_;
  Optimizer optimizer_;
  Tensors gradients_;  ///< sums()
  std::vector<Tensors> gradient_views_;
  int added_ = 0;                         ///< gradients since the last update
  std::vector<const Tensors*> replicas_;  ///< their sums(); empty: there are none
  at::Tensor mean_;                       ///< of the replicas' gradients
  std::optional<Correction> correction_;  ///< none: nothing is to be done
  std::unique_ptr<AuxiliaryHead> head_;   ///< null: none
  std::int64_t applied_ = 0;              ///< updates that the correction's rate has counted
  std::int64_t updates_ = 0;  ///< that the rate's schedule has counted; checkpoints keep it
  double rate_ = 1.0;         ///< backed_off()
  double asked_rate_ = 1.0;   ///< what set_rate() asked for
  bool as_recorded_ = false;
  std::vector<Tensors> snapshots_;  ///< two, the older one first
};

}  // namespace millrace::stages
