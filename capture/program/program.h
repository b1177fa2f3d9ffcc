// Step programs: a stage's work, recorded once and run again and again on a core, or captured in a
// CUDA Graph on a GPU.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "capture/operation_info.h"
#include "capture/program/arena.h"
#include "capture/program/kernels/kernels.h"

namespace millrace::program {

struct ProgramOptions {
  kernels::Team* team = nullptr;  ///< shares each operation; results do not depend on it
  kernels::Numerics numerics;
};

/// Prepared calls on memory at fixed addresses. Running them allocates nothing, except in LibTorch
/// operators that have no kernel here. Denormals are flushed to zero. Thread-bound, with its team.
class Program {
 public:
  /// Records one run of `body`. Its temporaries move to `arena`, other tensors keep their
  /// addresses. Arena and team outlive the program.
  /// Throws std::runtime_error if `body` can't be recorded.
  Program(const std::function<void()>& body, Arena& arena, const ProgramOptions& options = {});
  ~Program();

  void run();
  /// The same, but for large weights' gradients: returns whether there are any, which then have to
  /// be made by make_late() or an update's run_with(), before another program of the arena runs.
  bool run_early();
  void make_late();
  /// Runs an update, which makes the late gradients of `before` itself, part by part, so that they
  /// never lie in memory. False: it is no such update, and nothing was done.
  bool run_with(Program& before);
  /// The same as run(), timing each operation; on a core.
  void run_timed();
  /// One of operations() alone.
  void run_operation(std::size_t index) { run(index, index + 1); }
  std::vector<capture::OperationInfo> operations() const;

 private:
  struct Step;
  struct Parts;
  void run(std::size_t begin, std::size_t end);  ///< of the operations
  void run(std::span<const Step> steps);
  void run_by_team(std::span<const Step> steps);

  std::unique_ptr<Parts> parts_;
};

}  // namespace millrace::program
