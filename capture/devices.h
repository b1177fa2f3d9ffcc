#pragma once

#include <string>

namespace millrace::capture {

/// Makes LibTorch use deterministic CUDA kernels, and float32 without TF32. Process-wide.
void use_repeatable_kernels();
/// Usable CUDA devices; 0 without a driver, a device or the module for them.
int cuda_devices();
/// "NVIDIA H200", or "" for a device that is not there.
std::string cuda_device_name(int index);

}  // namespace millrace::capture
