// Between the kernel, which nvcc compiles, and LibTorch, which it need not see.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace millrace::stages {

/// `bytes`: [pixels][channels], `sample`: [channels][pixels], both on the device. On stream `on` of
/// the current device; returns at once.
void launch_sample(const std::uint8_t* bytes, std::int64_t pixels, int channels, float* sample,
                   cudaStream_t on);

}  // namespace millrace::stages
