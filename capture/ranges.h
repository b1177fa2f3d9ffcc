// Named time ranges on threads, for those who watch a run.
#pragma once

#include <chrono>

namespace millrace::capture {

/// Called for each operation of a step program on its thread. Must not allocate, lock or wait.
class OperationWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  virtual ~OperationWatch() = default;
  /// `name` lives as long as the process.
  virtual void ran(const char* name, Time begin, Time end) = 0;
};

/// Null: no observer.
inline thread_local OperationWatch* operation_watch = nullptr;

// For an attached profiler.

/// Whether a profiler that understands NVTX (Nsight Systems) is attached; false in a build without
/// CUDA's headers. Any thread; only the first call asks.
bool profiler_attached();

/// Begins a range on this thread, nested in its open ones. Only if profiler_attached().
void push_range(const char* name);
void pop_range();

}  // namespace millrace::capture
