// A stage's work on a CPU core, recorded once and run again and again: what a CUDA Graph is to a
// GPU.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "capture/operation_info.h"
#include "capture/program/arena.h"
#include "capture/program/kernels/team.h"

namespace millrace::program {

/// Prepared calls on memory at fixed addresses, with all that depends on the host decided. Running
/// it allocates nothing and asks nobody, but where a call is a LibTorch operator of which there is
/// no kernel. Numbers below 1e-38 are zeros to it. Thread-bound; a team's helpers work for that
/// thread.
class Program {
 public:
  /// One prepared call.
  class Operation {
   public:
    virtual ~Operation() = default;
    /// Its parts, one after another: whether a team shares the part, or its first thread does it
    /// alone.
    virtual std::vector<bool> phases() const { return {false}; }
    virtual void run(int phase, kernels::Share share) = 0;
    capture::OperationInfo info;
  };

  /// Runs `body` once and keeps what it did. Tensors that `body` leaves with others keep their
  /// addresses; those of its own lie in `arena`. Arena and team (null: none) outlive the program;
  /// the numbers are the same with and without a team. Throws std::runtime_error for a body that
  /// can't be recorded.
  Program(const std::function<void()>& body, Arena& arena, kernels::Team* team = nullptr);
  ~Program();

  void run();
  /// The same, timing each operation.
  void run_timed();
  std::vector<capture::OperationInfo> operations() const;

 private:
  void run(std::size_t begin, std::size_t end);          ///< of the operations
  void run_by_team(std::size_t begin, std::size_t end);  ///< of their parts

  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace millrace::program
