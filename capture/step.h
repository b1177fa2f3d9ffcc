// What the engine asks of a stage, whatever it runs on. Needs no LibTorch.
#pragma once

#include <cstdint>

namespace millrace::capture {

/// One stage's step on its device, prepared for a fixed number of slots. A sample in flight owns
/// one slot number everywhere: the same index names its input, target, activations and gradients.
/// Thread-bound: one worker makes every call, after the capture pass. The schedule guarantees that
/// whatever a call reads has been written, and that nobody still needs what it overwrites.
class Step {
 public:
  virtual ~Step() = default;

  /// Warms up and records, on the thread that will replay. Leaves weights as they are.
  virtual void prepare() = 0;

  /// Reads slot's input (first stage) or upstream activations; writes activations downstream, or,
  /// last stage, prediction and loss. Runs at the weights that `version` updates made; -1: the
  /// newest.
  virtual void forward(int slot, std::int64_t version) = 0;

  /// Takes the loss of the forward in `slot` where its target came later; before its backward.
  /// Nothing to do for a step whose forwards have their targets, or that takes no loss.
  virtual void compare(int slot) = 0;

  /// Lets go of what the forward kept in `slot`: its sample never goes backward.
  virtual void discard(int slot) = 0;
  /// The same in place of a backward (or its second part), since there is no gradient: the next
  /// update is skip_update().
  virtual void leave_out(int slot) = 0;

  /// Makes the activations of `slot` again, which the forward did not keep.
  virtual void recompute(int slot) = 0;

  /// Backpropagates the gradient that downstream left in `gradient_slot` through the activations
  /// kept in `slot` (last stage: slot's own loss); leaves the input's gradient in `slot`.
  virtual void backward(int slot, int gradient_slot) = 0;

  /// The same in two parts: the first leaves the input's gradient, the second adds the weights'.
  virtual void backward_input(int slot, int gradient_slot) = 0;
  virtual void backward_weight(int slot) = 0;

  /// Applies the mean of the gradients since the last update; with replicas, of all of theirs,
  /// which must be there. If it is not finite only the version's number changes, and skipped()
  /// counts it.
  virtual void update() = 0;
  /// Forgets those gradients instead; the version's number changes as it would.
  virtual void skip_update() = 0;
  /// Keeps weights and optimizer state for roll_back(), which goes back to the last snapshot but
  /// one (or the only one) and backs off with the learning rate; a new version, like an update.
  virtual void take_snapshot() = 0;
  virtual void roll_back() = 0;
  /// Multiplies the learning rate by `factor`, beside what roll_back() left, until set anew.
  virtual void set_rate(double factor) = 0;

  /// Loss of the sample in `slot` after its forward, or compare(). Last stage only.
  virtual float loss(int slot) const = 0;
  /// Updates left out since their gradient was not finite.
  virtual std::int64_t skipped() const = 0;

  /// Whether calls replay what a capture pass has recorded.
  virtual bool records() const { return false; }

  // A step may defer its work: then the calls above only say what is to be done, launch() starts
  // it, and what they leave on the host (loss, prediction, skipped()) is there when that launch is
  // over. Other deferring steps may be told at once that something lies in a slot: their work waits
  // for this one's on the device.

  virtual bool defers() const { return false; }
  /// Between these two, calls and launches are noted, recorded and not done.
  virtual void begin_capture_pass() {}
  virtual void end_capture_pass() {}
  /// Starts all that was called since the last launch. Returns how many launches there were.
  virtual std::int64_t launch() { return 0; }
  /// Whether the launch of that number and all before it are over. Asked in order.
  virtual bool over(std::int64_t launch) { return true; }
  /// Whether loss and prediction of the forward last launched in `slot` are on the host by now,
  /// though its launch may not be over.
  virtual bool shown(int slot) const { return true; }
  /// How long the launch that over() last found over took on its device, waits left out.
  virtual std::int64_t duration_ns() const { return 0; }
  /// Has the calling thread wait until every launch is over.
  virtual void synchronize() {}
};

}  // namespace millrace::capture
