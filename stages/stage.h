// A stage: consecutive modules with their weights, and what they compute for one sample.
#pragma once

#include <ATen/core/Tensor.h>  // at::Tensor

#include <memory>  // shared network, optimizer

#include "stages/correction.h"
#include "stages/network.h"
#include "stages/optimizer.h"
#include "stages/parameters.h"
#include "stages/read_out.h"

namespace millrace::stages {

using Tensors = std::vector<at::Tensor>;

/// Autograd's graph of some modules' forward, between tensors that are cut off from the rest.
struct Piece {
  Tensors inputs;     ///< leaves
  Tensors outputs;    ///< with their graph; the network's last piece: the loss
  Tensors gradients;  ///< of the outputs, between the two parts of a backward
};

/// What a stage keeps of one sample from forward to backward.
struct Activations {
  Tensors inputs;     ///< what crosses the cut before the stage, as Network::crossing() lists it
  Tensors outputs;    ///< what crosses the cut after it (last stage: the prediction); no graph
  at::Tensor target;  ///< last stage only
  at::Tensor loss;    ///< last stage only: scalar, no graph
  int buffer = 0;     ///< which of the stage's weight buffers the forward read
  std::vector<Piece> pieces;  ///< empty: the graph was not kept, or is used up
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
};

constexpr std::int64_t kNewest = -1;

/// How gradients are added up, for a caller that keeps the stage's book itself.
struct Adding {
  bool first = true;    ///< since the last update: they overwrite what was there
  bool retain = false;  ///< the activations can be gone back through again
};

/// Forward, backward and update of modules [begin, end). Knows nothing of threads, links, steps or
/// frames. Thread-bound, but see update().
class Stage {
 public:
  Stage(std::shared_ptr<const Network> network, StageRange range, const OptimizerSpec& optimizer,
        const at::TensorOptions& tensors, StageOptions options = {});

  /// Runs the modules at `version` of the weights, which must be kept. `inputs`: each [1,C,H,W].
  /// The last stage also takes the loss against `target`, mean squared error over all elements, and
  /// so do stages with a read-out. Throws std::logic_error for a version that is not kept.
  Activations forward(const Tensors& inputs, const at::Tensor& target = {},
                      std::int64_t version = kNewest) const;
  /// The same at the weights in `buffer`; for a recorded step, which runs whatever the version.
  Activations forward_at(const Tensors& inputs, const at::Tensor& target, int buffer) const;
  /// Makes the pieces of `activations` again, at the weights of their forward.
  void recompute(Activations& activations) const;

  /// Backpropagates `output_gradients` (the last stage: its loss; they are not looked at) through
  /// `activations`, which are used up; adds the weights' gradient to what update() will apply.
  /// Returns the inputs' gradients, {} for the first stage.
  Tensors backward(Activations& activations, const Tensors& output_gradients);
  /// The same in two parts, in a stage that is `split`.
  Tensors backward_input(Activations& activations, const Tensors& output_gradients);
  void backward_weight(Activations& activations);

  // The same for a recorded step. What is host work above (which buffer, how many gradients) is
  // the caller's here, so that replaying the device's work alone repeats them.
  Tensors backward(Activations& activations, const Tensors& output_gradients, Adding adding);
  Tensors backward_input(Activations& activations, const Tensors& output_gradients, Adding adding);
  void backward_weight(Activations& activations, Adding adding);
  /// Writes to buffer `to` what the mean of `count` gradients makes of buffer `from`, all on the
  /// device; if it is not finite the weights and the optimizer's state stay, and `skipped` counts
  /// it. `rate`: what the optimizer's rate is multiplied by. Both 0-dim on the stage's device.
  void guarded_update(int from, int to, int count, const at::Tensor& rate, at::Tensor& skipped);
  /// Writes to buffer `to` the weights of `from`.
  void copy_weights(int from, int to);
  /// take_snapshot() of buffer `from`, and what roll_back() then writes to buffer `to`.
  void take_snapshot(int from);
  void restore_snapshot(int to);
  /// Has update() use guarded_update(): what a recorded step computes, one call at a time.
  void update_as_recorded() { as_recorded_ = true; }
  /// Sets every gradient added up so far to `value`.
  void fill_gradients(double value);
  /// Counts updates and versions from the start again.
  void reset_count() { newest_ = applied_ = 0; }
  /// Counts a new version that was made so. Returns its number.
  std::int64_t advance() { return ++newest_; }
  int buffer_of(std::int64_t version) const { return int(version % options_.versions); }
  std::int64_t newest() const { return newest_; }
  /// The rate's factor for the next update, which it counts, beside what the optimizer has.
  double next_rate();
  void slow_down(double factor) { rate_ *= factor; }
  /// Whether it meets replicas at each update, which such a step can't.
  bool replicated() const { return !replicas_.empty(); }

  /// Applies the mean of the gradients added since the last update, and forgets them. With replicas
  /// the mean is over all of theirs, which must be complete and stay so until each has updated;
  /// they may update at once. False, and nothing changes but the version's number, if it is not
  /// finite.
  bool update();
  /// Makes a new version of the same weights: the gradients since the last update are forgotten.
  void skip_update();
  /// Remembers weights and optimizer state as they are now; two such snapshots are kept.
  void take_snapshot();
  /// Makes a new version of the weights of the older snapshot, with its optimizer's state, and
  /// multiplies the rate by `factor` from now on.
  void roll_back(double factor);
  /// Multiplies the learning rate by `factor`, beside what roll_back() left, until set anew.
  void set_rate(double factor) { asked_rate_ = factor; }
  /// Whether it learns from a read-out of its own (or, the last stage, beside others that do), so
  /// that gradients are fresh and none is passed on.
  bool greedy() const { return options_.correction.kind == "local"; }
  /// Makes `stages`, of which this is one, share their gradients; in the order of their samples.
  /// They must outlive it, where they are.
  void replicate(std::vector<const Stage*> stages);

  /// Copies of the weights under their names and of the optimizer's state under
  /// "optimizer.NAME.PARAMETER", so that a checkpoint outlives a change of the cut.
  StateDict checkpoint() const;
  /// Takes weights, and optimizer state where `state` holds some, from what checkpoint() gave.
  /// Throws std::invalid_argument for weights that are missing or of another shape.
  void restore(const StateDict& state);

  /// The newest version.
  Parameters& parameters() { return versions_[buffer_of(newest_)]; }
  const Parameters& parameters() const { return versions_[buffer_of(newest_)]; }
  const StageRange& range() const { return range_; }
  const StageOptions& options() const { return options_; }
  /// Bytes of one version of the weights, of the optimizer's state, and of sums of gradients.
  std::int64_t weight_bytes() const { return std::int64_t(parameters().flat().nbytes()); }
  std::int64_t optimizer_bytes() const;
  std::int64_t gradient_bytes() const;

 private:
  /// The modules of one Piece.
  struct Part {
    int begin = 0, end = 0;
    std::vector<int> uses;   ///< earlier modules whose outputs they use
    std::vector<int> gives;  ///< modules among them whose outputs later ones use
    std::size_t first_parameter = 0, parameters = 0;
  };
  /// Gradients of modules' outputs, by module + 1.
  using Gradients = Tensors;

  std::vector<Part> make_parts() const;
  std::unique_ptr<ReadOut> make_read_out(OptimizerSpec optimizer,
                                         const at::TensorOptions& tensors) const;
  /// In the layout that the stage computes in.
  at::Tensor entering(const at::Tensor& tensor, bool channels_last) const;
  void run(Activations& activations, bool keep) const;
  bool own_loss(const Part& part) const {
    return part.end == range_.end && (range_.last || read_out_);
  }
  at::Tensor target_loss(const at::Tensor& output, const at::Tensor& target) const;
  Gradients start(const Activations& activations, const Tensors& output_gradients) const;
  Tensors backward_piece(const Part& part, Piece& piece, Gradients& gradients, int buffer,
                         bool with_parameters, bool retain);
  Tensors finish(Gradients& gradients) const;
  void add_gradients(std::size_t parameter, const Tensors& gradients, bool first);
  Tensors wanted_of(const Part& part, int buffer) const;
  void add_found(const Part& part, Tensors found, bool first);
  std::string read_out_entry(const std::string& buffer) const;
  Tensors lasting(int buffer) const;  ///< all that a snapshot holds; aliases
  std::size_t sum() const { return std::size_t(newest_) % gradients_.size(); }

  std::shared_ptr<const Network> network_;
  StageRange range_;
  StageOptions options_;
  std::vector<int> before_, after_;            ///< modules that the cuts around it cross
  std::vector<std::size_t> parameter_counts_;  ///< a module
  std::vector<Part> parts_;
  std::vector<Parameters> versions_;  ///< version n in buffer n mod their number
  std::int64_t newest_ = 0;
  OptimizerSpec spec_;
  std::unique_ptr<Optimizer> optimizer_;
  /// Flat, laid out as the weights: the one of sum() adds up what came since the last update. With
  /// replicas there are two, in turn, since another may still read the last update's.
  Tensors gradients_;
  std::vector<Tensors> gradient_views_;
  int accumulated_ = 0;  ///< backwards since the last update
  std::vector<const Stage*> replicas_;
  at::Tensor mean_;                         ///< of the replicas' gradients
  std::unique_ptr<Correction> correction_;  ///< null: none
  std::unique_ptr<ReadOut> read_out_;       ///< null: none
  std::int64_t applied_ = 0;                ///< updates that the correction's rate has counted
  double rate_ = 1.0;                       ///< what roll_back() left of the rate
  double asked_rate_ = 1.0;                 ///< what set_rate() asked for
  bool as_recorded_ = false;
  std::vector<Tensors> snapshots_;  ///< two, the older one first
};

}  // namespace millrace::stages
