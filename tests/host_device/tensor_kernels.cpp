#include "tests/host_device/convolution_kernels.h"

namespace millrace::gpu {

#define TILE(...)                                     \
  HOST_WINDOWS(CONVOLUTIONS, tf32, __VA_ARGS__)       \
  HOST_WINDOWS(CONVOLUTIONS, exact_tf32, __VA_ARGS__) \
  HOST_WINDOWS(CONVOLUTIONS, half, __VA_ARGS__)
MILLRACE_TENSOR_TILES(TILE)
#undef TILE
#define TILE(...)                                         \
  HOST_WINDOWS(WEIGHT_GRADIENTS, tf32, __VA_ARGS__)       \
  HOST_WINDOWS(WEIGHT_GRADIENTS, exact_tf32, __VA_ARGS__) \
  HOST_WINDOWS(WEIGHT_GRADIENTS, half, __VA_ARGS__)
MILLRACE_TENSOR_GRADIENT_TILES(TILE)

}  // namespace millrace::gpu
