// Run-time compilation of kernels for the device at hand.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace millrace::gpu {

/// Why a device (by index) has no kernels; empty if it has: NVRTC loads and the device has
/// asynchronous copies (sm_80). Thread-safe.
std::string missing_compiler(int device);

/// Compiles those kernels that are neither in the process nor in the cache folder, on all cores,
/// about a second each. Thread-safe. Throws as kernel() does.
void prepare_kernels(const std::vector<std::string>& expressions, int device);

/// The kernel named by `expression` in namespace millrace::gpu, e.g. "elementwise<gpu::add>": a
/// cudaKernel_t, valid on every device until the process ends. Thread-safe. Throws
/// std::runtime_error with the compiler's messages.
/// \param shared_bytes the most that any launch asks for.
const void* kernel(const std::string& expression, int device, std::size_t shared_bytes);

struct Compiled {
  std::string name;  ///< in the binary
  std::string binary;
  std::string log;  ///< registers and spills, if asked for
};
/// Without caches and without a device. Thread-safe. Throws as kernel() does.
Compiled compile(const std::string& expression, int architecture, bool tell_registers = false);

}  // namespace millrace::gpu
