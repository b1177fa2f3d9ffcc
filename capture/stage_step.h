#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "capture/arena.h"
#include "capture/backend.h"
#include "capture/buffers.h"
#include "capture/recorded_calls.h"
#include "capture/step.h"
#include "stages/dead_units.h"
#include "stages/stage.h"

namespace millrace::capture {

struct RateInForce {
  double lr = 0;            ///< of the next update, before the correction
  double backed_off = 1.0;  ///< factor left by roll-backs; recovers
};

/// Owns its stage and its backend; the buffers outlive it. Thread-bound after the capture pass,
/// which another thread may run; stage() and the counts may be read while the workers are stopped.
///
/// On a backend that records, the capture pass records each call the first time it meets its slot,
/// weight buffer and gradient slot. These are fixed in the recording, so that replay needs no host
/// and allocates nothing. A backend that defers gets all calls between two launches as one graph,
/// any other backend each call at once. An eager backend runs each call as it comes, hands
/// activations over by handle and frees them after use.
class StageStep final : public Step {
 public:
  /// `upstream` is null for the first stage, `downstream` for the last.
  /// `sets`: of activations that recorded calls keep, and `stored`, of inputs, see
  /// engine::TensorSets; 0: one per slot.
  StageStep(stages::Stage stage, std::unique_ptr<Backend> backend, c10::Device device,
            SampleBuffers& samples, Boundary* upstream, Boundary* downstream, int sets = 0,
            int stored = 0);
  ~StageStep() override { finish(); }  // launches in flight use what is now freed

  void prepare() override;
  void forward(int slot, std::int64_t version) override;
  void compare(int slot) override;
  void discard(int slot) override;
  void leave_out(int slot) override;
  void backward_local(int slot) override;
  void recompute(int slot) override;
  void backward(int slot, int gradient_slot) override;
  void backward_input(int slot, int gradient_slot) override;
  void backward_weight(int slot) override;
  void update() override;
  void skip_update() override;
  void take_snapshot() override;
  void roll_back() override;
  void set_rate(double factor) override { stage_.set_rate(factor); }
  float loss(int slot) const override;
  std::int64_t skipped() const override;

  bool records() const override { return backend_->records(); }
  bool defers() const override { return backend_->defers(); }
  void begin_capture_pass() override { calls_.capturing = true; }
  /// Restores weights, optimizer and counts from before the capture pass.
  void end_capture_pass() override;
  std::int64_t launch() override;
  bool over(std::int64_t launch) override { return calls_.over(launch); }
  bool shown(int slot) const override {
    const auto& shown = slots_[slot].shown;
    return !shown || shown->is_set();
  }
  std::int64_t duration_ns() const override { return calls_.duration_ns(); }
  void synchronize() override { backend_->synchronize(); }
  /// Waits for the work of a failed run too: it uses memory that the caller may free now.
  void finish();

  const stages::Stage& stage() const { return stage_; }
  stages::Stage& stage() { return stage_; }
  /// Counted on cores only: elsewhere the host would have to wait. Any thread.
  const stages::DeadUnits& dead_units() const { return dead_units_; }
  /// Any thread.
  RateInForce rate_in_force() const {
    return {lr_.load(std::memory_order_relaxed), backed_off_.load(std::memory_order_relaxed)};
  }
  /// Peak bytes of activations held from forward to backward by all samples, less upstream's, and
  /// of stored inputs.
  std::int64_t peak_activation_bytes() const {
    return peak_bytes_ + stored_bytes_.value_or(0) * std::int64_t(stored_.size());
  }
  /// Bytes of what it leaves for its neighbours.
  std::int64_t cut_bytes() const;
  std::int64_t scratch_bytes() const { return backend_->scratch_bytes(); }
  /// Operations of a sample's step program once it is recorded; empty for any other step.
  std::vector<OperationInfo> operations() const { return calls_.operations(); }

 private:
  using Kind = RecordedCalls::Kind;

  /// The feed's tensors, on the device.
  struct Fed {
    at::Tensor sent, floats;  ///< floats: only if bytes are sent
  };

  /// Of a slot, at fixed addresses where a backend records.
  struct Slot {
    int buffer = 0;  ///< of weights: the one that its forward used
    Fed input, target;
    stages::Tensors activations_in, gradients_in;
    at::Tensor loss;               ///< last stage
    std::unique_ptr<Fence> shown;  ///< last stage: loss and prediction are on the host
  };

  /// Of a slot and a weight buffer.
  struct Kept {
    stages::Activations forward;
    /// With deep supervision: recompute()'s activations, for the backward. Apart from the
    /// forward's, for backward_local(), since each is recorded once.
    stages::Activations recomputed;
    /// Last stage: what is shown on the host, held until the next forward, since recomputation
    /// makes new results. The prediction is contiguous; the loss is undefined until its target
    /// arrives.
    at::Tensor prediction, loss;
  };

  int slots() const { return int(slots_.size()); }
  /// Whether what it leaves in `to` has no second copy here.
  bool unites(const BoundaryBuffers& to) const { return records() && !defers() && !to.on_host; }
  std::vector<BoundaryBuffers*> written() const;  ///< what this stage leaves for its neighbours
  void call_backward(Kind kind, int slot, int gradient_slot, bool first);
  void await(const BoundaryBuffers& from, int slot) const;
  void follow_rate(double rate);
  void tell_rate();

  void run_forward(int slot, int buffer);
  void run_show(int slot, int buffer);
  void run_backward(Kind kind, int slot, int buffer, int gradient_slot, stages::Adding adding);
  at::Tensor brought(const at::Tensor& from, at::Tensor& mine);
  at::Tensor fed(const at::Tensor& from, Fed& mine);
  stages::Tensors take(BoundaryBuffers& from, int slot, stages::Tensors& mine);
  void leave(BoundaryBuffers& to, int slot, stages::Tensors made);
  void show(at::Tensor& on_host, const at::Tensor& made);
  std::size_t kept_at(int slot, int buffer) const {
    return std::size_t(slot) * std::size_t(stage_.options().versions) + std::size_t(buffer);
  }
  stages::Activations& for_backward(std::size_t kept) {
    return stage_.supervised() ? kept_[kept].recomputed : kept_[kept].forward;
  }
  /// Runs `work` and measures what it retains, only the first time, since later calls retain as
  /// much. But until a backward_input(), which frees memory of a forward, each forward is measured.
  template <class Work>
  void measure(std::optional<std::int64_t>& bytes, const Work& work);
  void keeps(std::size_t kept, std::int64_t bytes);  ///< updates the peak

  stages::Stage stage_;
  stages::DeadUnits dead_units_;
  std::unique_ptr<Backend> backend_;
  c10::Device device_;
  SampleBuffers& samples_;
  Boundary* upstream_;
  Boundary* downstream_;

  std::vector<Slot> slots_;
  RecordedCalls calls_;
  bool update_called_ = false;  ///< since the last launch

  std::vector<Arena> sets_;    ///< memory of what recorded forwards keep, by slot mod size
  std::vector<Arena> stored_;  ///< of the inputs that they store, alike
  std::vector<Kept> kept_;     ///< by kept_at()

  double rate_ = 1.0;  ///< what rate_on_device_ holds
  std::atomic<double> lr_{0}, backed_off_{1};
  at::Tensor rate_on_device_, skipped_, skipped_on_device_;

  std::vector<std::int64_t> bytes_;  ///< by kept_at()
  std::int64_t all_bytes_ = 0, peak_bytes_ = 0;
  /// What each leaves allocated per sample; empty: not measured yet.
  std::optional<std::int64_t> forward_bytes_, stored_bytes_, recompute_bytes_,
      input_gradient_bytes_;
};

}  // namespace millrace::capture
