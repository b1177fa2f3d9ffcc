// What one operation of a step program is.
#pragma once

#include <cstdint>
#include <string>

namespace millrace::capture {

inline constexpr const char* kLibTorch = "LibTorch";  ///< a kernel that is none of ours

struct OperationInfo {
  std::string name;    ///< "forward 16x64x64 -> 16x64x64 k5 s1 relu" or "aten::native_group_norm"
  std::string kernel;  ///< which implementation; kLibTorch where we have none
  double flops = 0;    ///< of a run; 0: not counted
  double bytes = 0;    ///< of all that it reads and writes, each once
  std::int64_t best_ns = 0;  ///< of the runs that were timed; 0: none was
};

}  // namespace millrace::capture
