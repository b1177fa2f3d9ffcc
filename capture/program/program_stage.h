// A stage whose work is step programs, with the calls of stages::Stage: for the oracle.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "capture/program/program.h"
#include "stages/stage.h"

namespace millrace::program {

/// Computes what a stage on a CPU core does under capture = "graph", one call at a time and with a
/// bookkeeping of its own. Records everything at the first forward. Thread-bound.
class ProgramStage {
 public:
  /// `places`: how many samples may be between forward and backward. `count`: backwards an update.
  ProgramStage(stages::Stage stage, int places, int count, std::shared_ptr<KernelChoices> choices);
  ProgramStage(ProgramStage&&) noexcept;
  ~ProgramStage();

  struct Activations {
    std::vector<at::Tensor> outputs;  ///< copies
    at::Tensor loss;
    std::shared_ptr<int> place;  ///< free again once nobody holds it
    int buffer = 0;
  };
  Activations forward(const stages::Tensors& inputs, const at::Tensor& target,
                      std::int64_t version);
  void recompute(Activations& kept);
  stages::Tensors backward(Activations& kept, const stages::Tensors& gradients);
  stages::Tensors backward_input(Activations& kept, const stages::Tensors& gradients);
  void backward_weight(Activations& kept);
  bool update();
  void skip_update();
  void take_snapshot() { stage_.take_snapshot(); }
  void roll_back(double factor);
  bool greedy() const { return stage_.greedy(); }
  const stages::Stage& stage() const { return stage_; }

 private:
  enum class Part { backward, backward_input, backward_weight };
  /// What was recorded of one sample's way at one weight buffer.
  struct Recorded {
    stages::Activations kept;
    stages::Tensors outputs, made;  ///< the latter: gradients of the inputs
    at::Tensor loss;
    std::unique_ptr<Program> forward, recompute;
    std::map<std::pair<Part, bool>, std::unique_ptr<Program>> backward;  ///< and whether first
  };
  struct Place {
    stages::Tensors inputs, gradients;
    at::Tensor target;
    std::map<int, Recorded> recorded;  ///< by buffer
  };

  void record_all(const stages::Tensors& inputs, const at::Tensor& target);
  void record(Place& place, int buffer);
  stages::Tensors run_backward(Part part, Activations& kept, const stages::Tensors& gradients);

  stages::Stage stage_;
  int count_;
  std::shared_ptr<KernelChoices> choices_;
  Arena arena_;
  std::vector<Place> places_;
  std::shared_ptr<std::vector<int>> free_;
  std::map<int, std::unique_ptr<Program>> updates_;  ///< by the buffer that they write
  at::Tensor rate_, skipped_;
  int added_ = 0;
};

}  // namespace millrace::program
