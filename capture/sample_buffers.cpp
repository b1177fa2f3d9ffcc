#include <ATen/ATen.h>  // tensor creation

#include "capture/buffers.h"

namespace millrace::capture {

SampleBuffers::SampleBuffers(int slots, at::IntArrayRef shape, at::IntArrayRef target_shape)
    : prediction(slots) {
  for (int slot = 0; slot < slots; ++slot) {
    input.push_back(pinned_zeros(shape));
    target.push_back(target_shape.empty() ? input.back() : pinned_zeros(target_shape));
  }
}

}  // namespace millrace::capture
