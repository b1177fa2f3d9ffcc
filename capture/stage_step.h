// A stage's step: what its worker calls, done on a backend.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "capture/backend.h"
#include "capture/buffers.h"
#include "capture/recorded_calls.h"
#include "capture/step.h"
#include "stages/dead_units.h"
#include "stages/stage.h"

namespace millrace::capture {

/// A stage's learning rate.
struct RateInForce {
  double lr = 0;            ///< as the next update has it, but for the correction's share
  double backed_off = 1.0;  ///< what roll-backs have left of it; recovers
};

/// Owns its stage and its backend; the buffers outlive it. Thread-bound once the capture pass is
/// over, which another thread may run; stage() and counts may be read when the workers are not
/// running.
///
/// On a backend that records, each call is recorded in the capture pass, when it first meets its
/// slot, weight buffer and gradient slot; what depends on these numbers is fixed in the recording,
/// so that replaying it needs no host and allocates nothing. A backend that defers is given all
/// that was called between two launches as one graph; one that does not is given each call at once.
/// An eager backend runs each call as it comes, hands activations over by handle and frees them
/// when they are used up.
class StageStep final : public Step {
 public:
  /// `upstream` is null for the first stage, `downstream` for the last.
  StageStep(stages::Stage stage, std::unique_ptr<Backend> backend, c10::Device device,
            SampleBuffers& samples, Boundary* upstream, Boundary* downstream);
  ~StageStep() override;

  void prepare() override;
  void forward(int slot, std::int64_t version) override;
  void compare(int slot) override;
  void discard(int slot) override;
  void leave_out(int slot) override;
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
  void begin_capture_pass() override { calls_.begin_capture_pass(); }
  /// Leaves weights, optimizer and counts as they were before the capture pass.
  void end_capture_pass() override;
  std::int64_t launch() override;
  bool over(std::int64_t launch) override { return calls_.over(launch); }
  bool shown(int slot) const override { return !shown_[slot] || shown_[slot]->is_set(); }
  std::int64_t duration_ns() const override { return calls_.duration_ns(); }
  void synchronize() override { backend_->synchronize(); }

  const stages::Stage& stage() const { return stage_; }
  stages::Stage& stage() { return stage_; }
  /// Counted on cores alone: elsewhere looking would make the host wait. Any thread.
  const stages::DeadUnits& dead_units() const { return dead_units_; }
  /// Any thread.
  RateInForce rate_in_force() const {
    return {lr_.load(std::memory_order_relaxed), backed_off_.load(std::memory_order_relaxed)};
  }
  /// Bytes of activations kept at the worst moment so far, beyond what upstream gave: what lies
  /// between forward and backward, of all samples.
  std::int64_t peak_activation_bytes() const { return peak_bytes_; }
  /// What a sample's step program consists of, once it is recorded; empty for any other step.
  std::vector<OperationInfo> operations() const { return calls_.operations(); }

 private:
  enum class Kind {
    forward,
    show,
    compare,
    recompute,
    backward,
    backward_input,
    backward_weight,
    update
  };
  using Backward = stages::Tensors (stages::Stage::*)(stages::Activations&, const stages::Tensors&,
                                                      stages::Adding);

  /// What the feed gave, on the device.
  struct Fed {
    at::Tensor sent, floats;  ///< the latter where bytes are sent
  };

  /// What is shown on the host, held until the next forward: a recomputation makes it anew.
  struct Made {
    at::Tensor prediction;  ///< in one piece
    at::Tensor loss;        ///< undefined: its target is yet to come
  };

  // The calls.
  int slots() const { return int(samples_.input.size()); }
  std::vector<BoundaryBuffers*> written() const;  ///< what this stage leaves for its neighbours
  /// What a call's recording depends on.
  struct Call {
    Kind kind;
    int slot, buffer;
    int more = 0;        ///< gradient slot, or count of gradients
    bool first = false;  ///< gradients overwrite what was there
  };
  /// Runs `body`, or has its recording launched. `node`: what it waits for and signals.
  template <class Body>
  void call(const Call& call, const Body& body, const GraphNode& node = {});
  template <class Body>
  void give(const Body& body);  ///< as work that is not recorded
  void call_backward(Kind kind, Backward part, int slot, int gradient_slot, bool first);
  void await(const BoundaryBuffers& from, int slot) const;
  void follow_rate(double rate);
  void tell_rate();

  // Their bodies.
  void run_forward(int slot, int buffer);
  void run_show(int slot, int buffer);
  void run_backward(Kind kind, Backward part, int slot, int buffer, int gradient_slot,
                    stages::Adding adding);
  at::Tensor brought(const at::Tensor& from, at::Tensor& mine);
  at::Tensor fed(const at::Tensor& from, Fed& mine);
  stages::Tensors take(const BoundaryBuffers& from, int slot, std::vector<stages::Tensors>& mine);
  void leave(BoundaryBuffers& to, int slot, stages::Tensors made);
  void show(at::Tensor& on_host, const at::Tensor& made);
  /// Whether the stage takes a loss, and whether its target is what the stage has already.
  bool compares() const { return !downstream_ || stage_.learns_locally(); }
  bool target_is_its_input() const { return !upstream_ && samples_.target_is_input(); }
  std::size_t kept_at(int slot, int buffer) const {
    return std::size_t(slot) * std::size_t(stage_.options().versions) + std::size_t(buffer);
  }
  void keeps(std::size_t kept, std::int64_t bytes);  ///< counts it so

  stages::Stage stage_;
  stages::DeadUnits dead_units_;
  std::unique_ptr<Backend> backend_;
  c10::Device device_;
  SampleBuffers& samples_;
  Boundary* upstream_;
  Boundary* downstream_;

  RecordedCalls calls_;
  bool update_called_ = false;  ///< since the last launch

  std::vector<stages::Activations> kept_;  ///< by kept_at()
  std::vector<Made> made_;                 ///< by kept_at(), last stage
  std::vector<int> buffers_;               ///< by slot: that its forward ran at
  // By slot, at fixed addresses where a backend records.
  std::vector<Fed> inputs_, targets_;
  std::vector<stages::Tensors> activations_in_, gradients_in_;
  std::vector<at::Tensor> losses_;             ///< last stage
  std::vector<std::unique_ptr<Fence>> shown_;  ///< last stage: loss and prediction are on the host

  double rate_ = 1.0;  ///< what rate_on_device_ holds
  std::atomic<double> lr_{0}, backed_off_{1};
  at::Tensor rate_on_device_, skipped_on_device_, skipped_;

  std::vector<std::int64_t> bytes_;  ///< by kept_at()
  std::int64_t all_bytes_ = 0, peak_bytes_ = 0;
  /// What each leaves allocated for a sample; empty: not measured yet.
  std::optional<std::int64_t> forward_bytes_, recompute_bytes_, input_gradient_bytes_;
};

}  // namespace millrace::capture
