// Bytes to floats as one kernel, a thread a pixel: a warp reads the 32 or 96 bytes of neighbours,
// and writes 32 floats in a row to each plane. Each byte is read once and each float written once,
// so memory alone sets the pace.
#include "stages/sample_kernel_cuda.h"

namespace millrace::stages {
namespace {

__global__ void sample_of(const std::uint8_t* bytes, std::int64_t pixels, int channels,
                          float* sample) {
  const std::int64_t pixel = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (pixel >= pixels) return;
  // Rounded to nearest whatever the compiler's flags say, as a core rounds.
  for (int c = 0; c < channels; ++c)
    sample[c * pixels + pixel] = __fdiv_rn(float(bytes[pixel * channels + c]), 255.0f);
}

}  // namespace

void launch_sample(const std::uint8_t* bytes, std::int64_t pixels, int channels, float* sample,
                   cudaStream_t on) {
  constexpr int kThreads = 256;
  const auto blocks = unsigned((pixels + kThreads - 1) / kThreads);
  void* arguments[] = {&bytes, &pixels, &channels, &sample};
  cudaLaunchKernel(reinterpret_cast<const void*>(sample_of), blocks, kThreads, arguments, 0, on);
}

}  // namespace millrace::stages
