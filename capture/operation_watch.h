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

}  // namespace millrace::capture
