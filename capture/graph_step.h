// A stage's step as recorded work: each turn of its worker is one launch.
#pragma once

#include <map>     // recordings by what they are
#include <memory>  // recordings
#include <tuple>   // keys
#include <vector>  // turns

#include "capture/owning_step.h"

namespace millrace::capture {

/// Defers its work: what is called between two launches is looked up as a sequence of recorded
/// recordings, and started as the one graph that was assembled of them. Pieces are recorded in the
/// rehearsal, when a call first meets its slot, weight buffer and gradient slot; after that nothing
/// is allocated. What depends on these numbers is fixed in the recording, so that replaying it
/// needs no host. After the rehearsal thread-bound; the rehearsal itself may be run by another
/// thread.
class GraphStep final : public OwningStep {
 public:
  /// Throws std::invalid_argument for a replicated stage.
  GraphStep(stages::Stage stage, std::unique_ptr<Backend> stream, c10::Device device,
            SampleBuffers& samples, BoundaryBuffers* upstream, BoundaryBuffers* downstream);
  ~GraphStep() override;

  void prepare() override {}
  void forward(int slot, std::int64_t version) override;
  void discard(int) override {}  // its memory is the slot's for good
  void recompute(int slot) override;
  void backward(int slot, int gradient_slot) override;
  void backward_input(int slot, int gradient_slot) override;
  void backward_weight(int slot) override;
  void update() override;
  void skip_update() override;
  void take_snapshot() override;
  void roll_back(double factor) override;
  void set_rate(double factor) override { stage_.set_rate(factor); }
  float loss(int slot) const override { return losses_[slot].const_data_ptr<float>()[0]; }
  std::int64_t skipped() const override;

  bool defers() const override { return true; }
  void begin_rehearsal() override { rehearsing_ = true; }
  /// Leaves weights, optimizer and counts as they were before the rehearsal.
  void end_rehearsal() override;
  std::int64_t launch() override;
  bool over(std::int64_t launch) override;
  bool shown(int slot) const override { return shown_[slot]->is_set(); }
  std::int64_t duration_ns() const override { return duration_ns_; }
  void synchronize() override { stream_->synchronize(); }

  std::int64_t peak_activation_bytes() const override;
  /// Pieces recorded, and graphs assembled of them.
  std::size_t recordings() const { return parts_.size(); }
  std::size_t graphs() const { return graphs_.size(); }

 private:
  enum class Kind { forward, recompute, backward, backward_input, backward_weight, update };
  /// Kind, slot, weight buffer, and what else the kind depends on.
  using Key = std::tuple<Kind, int, int, int, int>;
  using Backward = stages::Tensors (stages::Stage::*)(stages::Activations&, const stages::Tensors&,
                                                      stages::Adding);

  /// What the feed gave, on the device.
  struct Fed {
    at::Tensor sent, floats;  ///< the latter where bytes are sent
  };

  /// Notes the recording of `key` for the next launch; in the rehearsal `body` is recorded if it is
  /// new.
  template <class Body>
  void call(const Key& key, Event* wait, Event* signal, const Body& body);
  /// What this stage writes.
  std::vector<Crossing*> crossings() const;
  static void expect(Stamp* stamp) {
    if (stamp) stamp->expect();
  }
  void run_forward(int slot, int buffer);
  void run_backward(Backward part, int slot, int buffer, int gradient_slot, stages::Adding adding);
  void call_backward(Kind kind, Backward part, int slot, int gradient_slot, bool first);
  void run_update(int from, int to, int count);
  stages::Tensors take(const Crossing& crossing, int slot, std::vector<stages::Tensors>& mine);
  at::Tensor brought(const at::Tensor& from, at::Tensor& mine);
  at::Tensor fed(const at::Tensor& from, Fed& mine);
  void leave(Crossing& crossing, int slot, const stages::Tensors& made);
  void show(at::Tensor& on_host, const at::Tensor& made);
  void follow_rate(double rate);

  std::unique_ptr<Backend> stream_;
  bool rehearsing_ = false;
  std::map<Key, int> numbers_;  ///< of parts_
  std::vector<std::unique_ptr<Recording>> recordings_;
  std::vector<Node> parts_;
  std::vector<int> called_;  ///< since the last launch
  bool update_called_ = false;
  std::map<std::vector<int>, std::unique_ptr<Graph>> graphs_;

  /// Launches not known to be over: launch number n at n mod size.
  std::vector<Graph*> under_way_;
  std::int64_t launched_ = 0, over_ = 0, duration_ns_ = 0;

  // Memory at fixed addresses, by slot.
  std::vector<std::map<int, stages::Activations>> kept_;  ///< and weight buffer
  std::vector<int> buffers_;                              ///< that the slot's forward ran at
  std::vector<Fed> inputs_, targets_;
  std::vector<at::Tensor> losses_;
  std::vector<std::unique_ptr<Stamp>> shown_;  ///< last stage: loss and prediction are on the host
  std::vector<stages::Tensors> activations_in_, gradients_in_;

  int added_ = 0;      ///< gradients since the last update
  double rate_ = 1.0;  ///< what rate_on_device_ holds
  at::Tensor rate_on_device_, skipped_on_device_, skipped_;
  std::int64_t forward_bytes_ = 0, forwards_recorded_ = 0;
};

}  // namespace millrace::capture
