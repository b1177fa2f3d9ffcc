// Whoever wants to know when which operation of a step program ran.
#pragma once

#include <chrono>

namespace millrace::capture {

/// Told of each operation that its thread runs. No allocation, lock or wait.
class OperationWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  virtual ~OperationWatch() = default;
  /// `name` lives as long as the process.
  virtual void ran(const char* name, Time begin, Time end) = 0;
};

/// This thread's; null: nobody wants to know.
inline thread_local OperationWatch* operation_watch = nullptr;

}  // namespace millrace::capture
