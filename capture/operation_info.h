#pragma once

#include <cstdint>
#include <string>

namespace millrace::capture {

inline constexpr const char* kLibTorch = "LibTorch";  ///< a kernel that isn't ours

struct OperationInfo {
  std::string name;    ///< "forward 16x64x64 -> 16x64x64 k5 s1 relu" or "aten::native_group_norm"
  std::string kernel;  ///< implementation; kLibTorch where we have none
  double flops = 0;    ///< per run; 0: not counted
  double bytes = 0;    ///< read and written, each once
  std::int64_t best_ns = 0;  ///< of the timed runs; 0: none
};

}  // namespace millrace::capture
