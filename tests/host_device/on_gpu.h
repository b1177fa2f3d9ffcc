// What tests of a GPU's kernels share.
#pragma once

#include <c10/core/Device.h>

#include <cstdlib>

namespace millrace::program {

inline const c10::Device kGpu(at::kCUDA, 0);

inline bool is_long() {
  return std::getenv("MILLRACE_LONG") != nullptr;
}

}  // namespace millrace::program
