// Which convolutions the host device has: one file a kind compiles them.
#pragma once

#define MILLRACE_HOST_DEVICE "tests/host_device/block.h"
#include "capture/program/cuda/convolution.cuh"
#include "capture/program/cuda/weight_gradient.cuh"

// Others fault there. A macro's further arguments come first.
#define HOST_WINDOWS(WINDOW, ...)               \
  WINDOW((1, 1, 1, 1, 1, 1, 0, 0), __VA_ARGS__) \
  WINDOW((1, 1, 2, 2, 1, 1, 0, 0), __VA_ARGS__) \
  WINDOW((3, 3, 1, 1, 1, 1, 1, 1), __VA_ARGS__) \
  WINDOW((3, 3, 2, 2, 1, 1, 1, 1), __VA_ARGS__) \
  WINDOW((5, 5, 1, 1, 1, 1, 2, 2), __VA_ARGS__) \
  WINDOW((2, 3, 1, 2, 3, 1, 0, 2), __VA_ARGS__) \
  WINDOW((7, 7, 2, 2, 1, 1, 3, 3), __VA_ARGS__)
#define HOST_LARGE_WINDOW(WINDOW, ...) WINDOW((15, 15, 1, 1, 1, 1, 7, 7), __VA_ARGS__)

#define WINDOW_TYPE(...) Window<__VA_ARGS__>
#define CONVOLUTIONS(window, products, ...)                                                   \
  template KERNEL(0) convolution<WINDOW_TYPE window, false, Products::products, __VA_ARGS__>( \
      ConvolutionArguments);                                                                  \
  template KERNEL(0) convolution<WINDOW_TYPE window, true, Products::products, __VA_ARGS__>(  \
      ConvolutionArguments);
#define WEIGHT_GRADIENTS(window, products, ...)                                             \
  template KERNEL(0) weight_gradients<WINDOW_TYPE window, Products::products, __VA_ARGS__>( \
      WeightGradientArguments);
#define PLAIN(window, ...)                                                               \
  template KERNEL(0) plain_convolution<WINDOW_TYPE window, false>(ConvolutionArguments); \
  template KERNEL(0) plain_convolution<WINDOW_TYPE window, true>(ConvolutionArguments);  \
  template KERNEL(0) plain_weight_gradient<WINDOW_TYPE window>(WeightGradientArguments);
