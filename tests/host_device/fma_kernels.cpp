#include "tests/host_device/convolution_kernels.h"

namespace millrace::gpu {

#define TILE(...)                              \
  HOST_WINDOWS(CONVOLUTIONS, fma, __VA_ARGS__) \
  HOST_LARGE_WINDOW(CONVOLUTIONS, fma, __VA_ARGS__)
MILLRACE_FMA_TILES(TILE)
#undef TILE
#define TILE(...)                                  \
  HOST_WINDOWS(WEIGHT_GRADIENTS, fma, __VA_ARGS__) \
  HOST_LARGE_WINDOW(WEIGHT_GRADIENTS, fma, __VA_ARGS__)
MILLRACE_FMA_GRADIENT_TILES(TILE)
HOST_WINDOWS(PLAIN, )
HOST_LARGE_WINDOW(PLAIN, )
PLAIN((31, 31, 32, 32, 1, 1, 15, 15), )  // no tile of it fits

}  // namespace millrace::gpu
