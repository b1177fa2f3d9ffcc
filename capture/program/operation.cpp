#include "capture/program/operation.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "capture/program/operations/convolution.h"

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

std::string text_of(const kernels::Layout& layout) {
  return std::to_string(layout.channels) + "x" + std::to_string(layout.height) + "x" +
         std::to_string(layout.width);
}

std::string describe(const kernels::Convolution& c) {
  static constexpr const char* passes[] = {"forward ", "data-gradient ", "weight-gradient ",
                                           "gradients "};
  static constexpr const char* activations[] = {"", " relu", " sigmoid"};
  const auto [rows, columns] = kernels::window_of(c);
  const auto sides = [](int of_rows, int of_columns) {
    return std::to_string(of_rows) +
           (of_rows == of_columns ? "" : "x" + std::to_string(of_columns));
  };
  std::string text = passes[int(c.pass)] + text_of(c.input) + " -> " + text_of(c.output) + " k" +
                     sides(rows.count, columns.count) + " s" + sides(rows.stride, columns.stride);
  if (c.window)
    text +=
        " p" + sides(rows.padding, columns.padding) + " d" + sides(rows.dilation, columns.dilation);
  if (c.groups > 1) text += " of " + std::to_string(c.groups) + " groups";
  return text + activations[int(c.activation)] + (c.masked ? " masked" : "");
}

}  // namespace millrace::program
