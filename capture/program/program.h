// Step programs: a stage's work, recorded once and replayed on a core or in a CUDA Graph.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "capture/arena.h"
#include "capture/backend.h"
#include "capture/program/kernels/kernels.h"

namespace millrace::program {

using capture::Arena;
class LateGradient;
class Prepared;
struct Node;

/// Large weight gradients of a program that wait for the update, which computes them part by part
/// without memory for the whole, if it is the next program; any other computes them first.
struct LateGradients {
  /// Computes and stores those that wait, before anything else reads or writes memory of the arena.
  void make(kernels::Team* team);

  std::vector<LateGradient*> waiting;
  bool none = false;  ///< nothing waits: an OperationWatch expects each operation in its place
};

struct ProgramOptions {
  kernels::Team* team = nullptr;  ///< shares each operation; the results don't depend on it
  LateGradients* late = nullptr;  ///< of all programs of the arena; null: gradients don't wait
  kernels::Numerics numerics;
};

/// Prepared calls on memory at fixed addresses. Running allocates nothing, except in LibTorch
/// operators without a kernel here. Flushes denormals to zero. Thread-bound, with its team.
class Program {
 public:
  /// Records one run of `body`. Its temporaries move to `arena`, others keep their addresses. Arena
  /// and team outlive the program. Throws std::runtime_error for a `body` that can't be recorded.
  Program(const std::function<void()>& body, Arena& arena, const ProgramOptions& options = {});
  ~Program();

  void run();
  /// Runs and times each operation; on a core.
  void run_timed();
  void run_operation(std::size_t index) { run(index, index + 1); }
  std::vector<capture::OperationInfo> operations() const;

 private:
  struct Step;
  void run(std::size_t begin, std::size_t end);  ///< indices into operations()
  void run_by_team(std::span<const Step> steps);

  std::vector<Node> nodes_;  ///< own the memory
  std::vector<std::unique_ptr<Prepared>> operations_;
  std::vector<const char*> names_;  ///< for an OperationWatch
  std::vector<Step> steps_;
  std::vector<std::size_t> first_steps_;  ///< by operation, then the end
  Prepared* first_update_ = nullptr;  ///< the first operation, if nothing else touches its gradient
  kernels::Team* const team_;
  LateGradients* const late_;
};

/// Makes a GPU's backend record step programs, all in one arena; empty if we have no kernels for
/// the device: its steps stay LibTorch operators.
capture::Lowering gpu_lowering(c10::Device device, const kernels::Numerics& numerics = {});

}  // namespace millrace::program

namespace millrace::capture {

/// For CPU cores: recordings are step programs, run by the launching thread and `threads` - 1
/// helpers. \param started called on each helper at its start with its index from 1 on, to pin it.
std::unique_ptr<Backend> make_core_backend(int threads,
                                           const std::function<void(int index)>& started,
                                           const kernels::Numerics& numerics);

}  // namespace millrace::capture
