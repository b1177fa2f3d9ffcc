// What the engine asks of a stage, whatever it runs on. Needs no LibTorch.
#pragma once

#include <cstdint>  // counts

namespace millrace::capture {

/// One stage's step on its device, prepared for a fixed number of slots. A sample in flight owns
/// one slot number everywhere: the same index names its input, target, activations and gradients.
/// Thread-bound: one worker makes every call. The schedule guarantees that whatever a call reads
/// has been written, and that nobody still needs what it overwrites.
class Step {
 public:
  virtual ~Step() = default;

  /// Warms up and records, on the thread that will replay. Leaves weights as they are.
  virtual void prepare() = 0;

  /// Reads slot's input (first stage) or upstream activations; writes activations downstream, or,
  /// last stage, prediction and loss. Runs at the weights that `version` updates made; -1: the
  /// newest.
  virtual void forward(int slot, std::int64_t version) = 0;

  /// Lets go of what the forward kept in `slot`: its sample never goes backward.
  virtual void discard(int slot) = 0;

  /// Makes the activations of `slot` again, which the forward did not keep.
  virtual void recompute(int slot) = 0;

  /// Backpropagates the gradient that downstream left in `gradient_slot` through the activations
  /// kept in `slot` (last stage: slot's own loss); leaves the input's gradient in `slot`.
  virtual void backward(int slot, int gradient_slot) = 0;

  /// The same in two parts: the first leaves the input's gradient, the second adds the weights'.
  virtual void backward_input(int slot, int gradient_slot) = 0;
  virtual void backward_weight(int slot) = 0;

  /// Applies the mean of the gradients since the last update; with replicas, of all of theirs,
  /// which must be there. False if they are not finite: then only the version's number changes.
  virtual bool update() = 0;
  /// Forgets those gradients instead; the version's number changes as it would.
  virtual void skip_update() = 0;
  /// Keeps weights and optimizer state for roll_back(), which goes back to the last snapshot but
  /// one (or the only one) and multiplies the learning rate by `factor`; a new version, like an
  /// update.
  virtual void take_snapshot() = 0;
  virtual void roll_back(double factor) = 0;
  /// Multiplies the learning rate by `factor`, beside what roll_back() left, until set anew.
  virtual void set_rate(double factor) = 0;

  /// Loss of the sample in `slot` after its forward. Last stage only.
  virtual float loss(int slot) const = 0;
};

}  // namespace millrace::capture
