// Kernels compiled at the start, for the device at hand.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace millrace::gpu {

/// Why there are no kernels for a device (by index); empty if there are: NVRTC can be loaded, and
/// the device has asynchronous copies (sm_80). Thread-safe.
std::string missing_compiler(int device);

/// Has kernel() ready for these: those that are neither in the process nor in the cache folder are
/// compiled, on all cores, about a second each. Thread-safe. Throws as kernel() does.
void prepare_kernels(const std::vector<std::string>& expressions, int device);

/// The kernel that `expression` names in namespace millrace::gpu, e.g. "elementwise<gpu::add>": a
/// cudaKernel_t of every device, for as long as the process lives.
/// Thread-safe. Throws std::runtime_error with the compiler's words.
/// \param shared_bytes the most that a launch of it asks for.
const void* kernel(const std::string& expression, int device, std::size_t shared_bytes);

struct Compiled {
  std::string name;  ///< in the binary
  std::string binary;
  std::string log;  ///< registers and spills, where the compiler is asked to tell them
};
/// Without the caches, and without a device. Thread-safe. Throws as kernel() does.
Compiled compile(const std::string& expression, int architecture, bool tell_registers = false);

}  // namespace millrace::gpu
