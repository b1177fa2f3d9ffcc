#include <ATen/ATen.h>

#include "capture/buffers.h"

namespace millrace::capture {

SampleBuffers::SampleBuffers(int slots, at::IntArrayRef shape, at::IntArrayRef target_shape,
                             bool pinned, AsBytes as_bytes)
    : prediction(slots) {
  const auto make = [&](at::IntArrayRef sizes, bool bytes) {
    const std::vector<std::int64_t> frame{sizes[2], sizes[3], sizes[1]};
    const at::IntArrayRef laid = bytes ? frame : sizes;
    const at::ScalarType type = bytes ? at::kByte : at::kFloat;
    return pinned ? pinned_zeros(laid, type) : at::zeros(laid, type);
  };
  for (int slot = 0; slot < slots; ++slot) {
    input.push_back(make(shape, as_bytes.input));
    target.push_back(target_shape.empty() ? input.back() : make(target_shape, as_bytes.target));
  }
}

}  // namespace millrace::capture
