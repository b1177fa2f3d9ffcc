#include <ATen/ATen.h>  // tensor creation

#include "capture/buffers.h"

namespace millrace::capture {

SampleBuffers::SampleBuffers(int slots, at::IntArrayRef shape, at::IntArrayRef target_shape,
                             bool pinned)
    : prediction(slots) {
  const auto make = [&](at::IntArrayRef sizes) {
    return pinned ? pinned_zeros(sizes) : at::zeros(sizes, at::kFloat);
  };
  for (int slot = 0; slot < slots; ++slot) {
    input.push_back(make(shape));
    target.push_back(target_shape.empty() ? input.back() : make(target_shape));
  }
}

}  // namespace millrace::capture
