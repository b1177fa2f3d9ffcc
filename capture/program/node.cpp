#include "capture/program/node.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace millrace::program {

bool is_dense(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && (tensor.is_cpu() || tensor.is_cuda()) &&
         tensor.is_non_overlapping_and_dense();
}

at::MemoryFormat image_format(c10::Device device) {
  return device.is_cuda() ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast;
}

bool is_image(const at::Tensor& tensor) {
  return is_dense(tensor) && tensor.dim() == 4 && tensor.size(0) == 1 &&
         tensor.is_contiguous(image_format(tensor.device()));
}

kernels::Layout layout_of(const at::Tensor& tensor) {
  return {
      .height = int(tensor.size(2)), .width = int(tensor.size(3)), .channels = int(tensor.size(1))};
}

bool lie_alike(const at::Tensor& a, const at::Tensor& b) {
  return is_dense(a) && is_dense(b) && a.device() == b.device() && a.sizes() == b.sizes() &&
         (a.strides() == b.strides() || (is_image(a) && is_image(b)) ||
          (a.is_contiguous() && b.is_contiguous()));
}

bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.sizes() == b.sizes() &&
         (a.strides() == b.strides() || lie_alike(a, b));
}

std::vector<std::int64_t> by_stride(const at::Tensor& tensor) {
  std::vector<std::int64_t> order;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) > 1) order.push_back(d);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return tensor.stride(a) > tensor.stride(b); });
  return order;
}

}  // namespace millrace::program
