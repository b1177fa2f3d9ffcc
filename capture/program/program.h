// A stage's work on a CPU core, recorded once and run again and again: what a CUDA Graph is to a
// GPU.
#pragma once

#include <cstdint>     // times
#include <functional>  // bodies
#include <memory>      // operations
#include <string>      // names
#include <vector>      // operations

#include "capture/program/arena.h"
#include "capture/program/kernel_choices.h"

namespace millrace::program {

/// What one operation of a program is, and what it has cost.
struct OperationInfo {
  std::string name;    ///< "convolution 16x64x64 -> 16x64x64 k5 relu" or "aten::native_group_norm"
  std::string kernel;  ///< which implementation; "LibTorch" where we have none
  double flops = 0;    ///< of a run; 0: not counted
  std::int64_t best_ns = 0;  ///< of the runs that were timed; 0: none was
};

/// Prepared calls on memory at fixed addresses, with all that depends on the host decided. Running
/// it allocates nothing and asks nobody, but where a call is a LibTorch operator of which there is
/// no kernel. Thread-bound.
class Program {
 public:
  /// One prepared call.
  class Operation {
   public:
    virtual ~Operation() = default;
    virtual void run() = 0;
    OperationInfo info;
  };

  /// Runs `body` once and keeps what it did. Tensors that `body` leaves with others keep their
  /// addresses; those of its own lie in `arena`, which outlives the program. Throws
  /// std::runtime_error for a body that can't be recorded.
  Program(const std::function<void()>& body, Arena& arena, KernelChoices& choices);
  ~Program();

  void run();
  /// The same, timing each operation.
  void run_timed();
  std::vector<OperationInfo> operations() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace millrace::program
