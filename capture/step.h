// The engine's interface to a stage's step. Needs no LibTorch.
#pragma once

#include <cstdint>

namespace millrace::capture {

/// One stage's step on its device, prepared for a fixed number of slots. A sample in flight owns
/// one slot number: it indexes its input, target, activations and gradients everywhere.
/// Thread-bound: after the capture pass, one worker makes every call. The schedule guarantees that
/// everything a call reads has been written and nothing it overwrites is still needed.
class Step {
 public:
  virtual ~Step() = default;

  /// Warms up and records, on the thread that will replay. Leaves the weights unchanged.
  virtual void prepare() = 0;

  /// Reads the slot's input (first stage) or upstream activations; writes activations downstream,
  /// or prediction and loss (last stage). Uses the weights after `version` updates; -1: the newest.
  virtual void forward(int slot, std::int64_t version) = 0;

  /// Computes the loss of the forward in `slot` if its target came later; before its backward.
  /// No-op for a step whose forwards have their targets, or that has no loss.
  virtual void compare(int slot) = 0;

  /// Frees the activations of `slot`, whose sample has no backward.
  virtual void discard(int slot) = 0;
  /// Replaces a backward (or its second part) that has no gradient. skip_update() is next, unless
  /// the update has a local gradient.
  virtual void leave_out(int slot) = 0;

  /// Backpropagates the loss of the stage's auxiliary head, right after the slot's forward, for the
  /// weights' gradient alone; the next backward adds to it. Only the input stays in memory. In an
  /// update without it the head makes no step.
  virtual void backward_local(int slot) {}

  /// Recomputes the activations of `slot`, which the forward did not keep.
  virtual void recompute(int slot) = 0;

  /// Backpropagates the gradient that downstream left in `gradient_slot` (last stage: the slot's
  /// own loss) through the activations kept in `slot`; leaves the input's gradient in `slot`.
  virtual void backward(int slot, int gradient_slot) = 0;

  /// A backward in two parts: the input's gradient first, then the weights'.
  virtual void backward_input(int slot, int gradient_slot) = 0;
  virtual void backward_weight(int slot) = 0;

  /// Applies the mean of the gradients since the last update; with replicas, of those of all ranks,
  /// which must have arrived. If it is not finite, only the version and skipped() advance.
  virtual void update() = 0;
  /// Discards the gradients since the last update; the version still advances.
  virtual void skip_update() = 0;
  /// Saves weights and optimizer state for roll_back(), which restores the last snapshot but one
  /// (or the only one), lowers the learning rate and creates a new version, like an update.
  virtual void take_snapshot() = 0;
  virtual void roll_back() = 0;
  /// Multiplies the learning rate by `factor`, besides that of roll_back(), until the next call.
  virtual void set_rate(double factor) = 0;

  /// Loss of the sample in `slot` after its forward, or compare(). Last stage only.
  virtual float loss(int slot) const = 0;
  /// Updates skipped because their gradient was not finite.
  virtual std::int64_t skipped() const = 0;

  /// Whether calls replay a recorded capture pass.
  virtual bool records() const { return false; }

  // A step may defer its work: the calls above then only queue it, launch() starts it, and what
  // they leave on the host (loss, prediction, skipped()) is there when that launch is over. Other
  // deferring steps may get a slot's token at once: their work waits for its data on the device.

  virtual bool defers() const { return false; }
  /// During the capture pass, calls and launches are noted and recorded, but not executed.
  virtual void begin_capture_pass() {}
  virtual void end_capture_pass() {}
  /// Starts all calls since the last launch. Returns the number of launches so far.
  virtual std::int64_t launch() { return 0; }
  /// Whether launch number `launch` and all before it are over. Query in order.
  virtual bool over(std::int64_t launch) { return true; }
  /// Whether loss and prediction of the latest forward in `slot` have reached the host yet.
  virtual bool shown(int slot) const { return true; }
  /// Device time, waits excluded, of the latest launch that was timed and found over: some are.
  virtual std::int64_t duration_ns() const { return 0; }
  virtual void synchronize() {}
};

}  // namespace millrace::capture
