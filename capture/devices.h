// Which CUDA devices are here, and how LibTorch uses them.
#pragma once

#include <string>

namespace millrace::capture {

/// Has LibTorch use CUDA kernels whose results are the same in every run, and float32 where it says
/// float32. For the process.
void use_repeatable_kernels();
/// CUDA devices that can be used; 0 without a driver, a device or CUDA in this build.
int cuda_devices();
/// "NVIDIA H200", or "" for a device that is not there.
std::string cuda_device_name(int index);
/// CUDA version of LibTorch, "13.0", or "" without.
std::string cuda_version();

}  // namespace millrace::capture
