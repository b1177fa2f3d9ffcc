#pragma once

#include <map>
#include <memory>
#include <vector>

#include "capture/program/program.h"
#include "stages/stage.h"

namespace millrace::program {

/// For the oracle: a stage that computes what one on a CPU core does under capture = "graph", one
/// call at a time. Records everything at the first forward. Thread-bound.
class ProgramStage : public stages::Stage {
 public:
  /// `places`: most samples between forward and backward. `count`: backwards per update.
  ProgramStage(stages::Stage stage, int places, int count, const ProgramOptions& options = {});
  ProgramStage(ProgramStage&&) noexcept;
  ~ProgramStage();

  struct Activations {
    std::vector<at::Tensor> outputs;  ///< copies
    at::Tensor loss;
    std::shared_ptr<int> place;  ///< free once nobody holds it
    int buffer = 0;
  };
  Activations forward(const stages::Tensors& inputs, const at::Tensor& target, int buffer);
  void backward_local(Activations& kept, stages::Adding adding) {
    run(Part::backward_local, kept, {}, adding.first);
  }
  void recompute(Activations& kept) { run(Part::recompute, kept, {}, true); }
  stages::Tensors backward(Activations& kept, const stages::Tensors& gradients,
                           stages::Adding adding) {
    return run(Part::backward, kept, gradients, adding.first);
  }
  stages::Tensors backward_input(Activations& kept, const stages::Tensors& gradients) {
    return run(Part::backward_input, kept, gradients, true);
  }
  void backward_weight(Activations& kept, stages::Adding adding) {
    run(Part::backward_weight, kept, {}, adding.first);
  }
  bool update(const stages::Change& change, double rate);

  /// A step's operations, timed over up to `rounds` steps on made-up numbers, which ruins weights
  /// and state. On a GPU each runs many times in a graph of its own.
  std::vector<capture::OperationInfo> operations(int rounds);

 private:
  enum class Part { forward, backward_local, recompute, backward, backward_input, backward_weight };
  /// The recorded programs of one sample at one weight buffer.
  struct Recorded {
    stages::Activations kept;
    stages::Tensors outputs, made;  ///< made: gradients of the inputs
    at::Tensor loss;
    /// Also by whether gradients overwrite.
    std::map<std::pair<Part, bool>, std::unique_ptr<Program>> programs;
  };
  struct Place {
    stages::Tensors inputs, gradients;
    at::Tensor target;
    std::map<int, Recorded> recorded;  ///< by buffer
  };

  void record_all(const stages::Tensors& inputs, const at::Tensor& target);
  void record(Place& place, int buffer);
  /// \returns the input gradients.
  stages::Tensors run(Part part, Activations& kept, const stages::Tensors& gradients, bool first);

  int count_;
  const ProgramOptions options_;
  Arena arena_;
  std::vector<Place> places_;
  std::shared_ptr<std::vector<int>> free_;
  std::map<int, std::unique_ptr<Program>> updates_;  ///< by the buffer they write
  at::Tensor rate_, skipped_;
};

}  // namespace millrace::program
